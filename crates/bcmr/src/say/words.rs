//! The words for what the engine did and why: one row for each [`Op`] and [`Reason`]. Where a reason speaks of something,
//! `{0}`, `{1}` and so on stand for it.
//!
//! Must not know where they go; `say` makes lines of them.

use crate::names::shell_word;
use bcmr_engine::error::{About, Note, Op, Reason};

/// What was tried, as a verb that a name follows.
pub fn op(op: Op) -> String {
    let words = match op {
        Op::AgreeWith => "agree with",
        Op::Plan => "plan",
        Op::ReadPlan => "read the plan",
        Op::WritePlan => "write the plan",
        Op::CopyShardOf => "do a shard of",
        Op::FinishPlan => "finish",
        Op::Claim => "claim",
        Op::Answer => "answer",
        Op::AppendTo => "append to",
        Op::Change => "change",
        Op::CleanUp => "clean up",
        Op::CloneTo => "clone to",
        Op::Compare => "compare",
        Op::ConfineTo => "confine to",
        Op::ConnectTo => "connect to",
        Op::Copy => "copy",
        Op::CopyAllOf => "copy all of",
        Op::CopyByScp => "copy by scp",
        Op::CopyByScpTo => "copy by scp to",
        Op::CopyInto => "copy into",
        Op::CopyTo => "copy to",
        Op::Count => "count",
        Op::Create => "create",
        Op::Cut => "cut",
        Op::CutSessionOf => "cut session of",
        Op::DisconnectFrom => "disconnect from",
        Op::Encode => "encode",
        Op::Enter => "enter",
        Op::FindTheFirstNameOf => "find the first name of",
        Op::Finish => "finish",
        Op::Follow => "follow",
        Op::Greet => "greet",
        Op::Hash => "hash",
        Op::HoldWhatIsReadFor => "hold what is read for",
        Op::Join => "join",
        Op::KeepEveryOwner => "keep every owner",
        Op::KeepTheLinksOf => "keep the links of",
        Op::Link => "link",
        Op::List => "list",
        Op::ListDirectory => "list directory",
        Op::Listen => "listen",
        Op::MakeANonce => "make a nonce",
        Op::MakeDirectory => "make directory",
        Op::MakeHardLink => "make hard link",
        Op::MakeSpecialFile => "make special file",
        Op::MakeSymbolicLink => "make symbolic link",
        Op::Mark => "mark",
        Op::MergeInto => "merge into",
        Op::MergeIntoDirectory => "merge into directory",
        Op::Move => "move",
        Op::MoveTo => "move to",
        Op::NameAStageFor => "name a stage for",
        Op::Open => "open",
        Op::OpenAllConnectionsTo => "open all connections to",
        Op::OpenDirectory => "open directory",
        Op::OpenForWriting => "open for writing",
        Op::OpenRoot => "open root",
        Op::OpenSessionOf => "open session of",
        Op::OpenTarget => "open target",
        Op::OpenTargetDirectory => "open target directory",
        Op::OpenUnfinished => "open unfinished",
        Op::ParsePattern => "parse pattern",
        Op::PublishDirectory => "publish directory",
        Op::PutBcmrOn => "put bcmr on",
        Op::Read => "read",
        Op::ReadAttributesOf => "read attributes of",
        Op::ReadBack => "read back",
        Op::ReadRules => "read the rules in",
        Op::ReadLink => "read link",
        Op::ReadListOfNames => "read list of names",
        Op::ReadListOfNamesBelow => "read list of names below",
        Op::ReadManifest => "read manifest",
        Op::ReadNames => "read names",
        Op::ReadNamesBelow => "read names below",
        Op::ReadPolicy => "read policy",
        Op::ReadSource => "read source",
        Op::ReadUnfinished => "read unfinished",
        Op::Receive => "receive",
        Op::ReceiveFrom => "receive from",
        Op::Remove => "remove",
        Op::RemoveAttributesOf => "remove attributes of",
        Op::RemoveDirectory => "remove directory",
        Op::RemoveSessionOf => "remove session of",
        Op::RemoveSource => "remove source",
        Op::RemoveTheSourceOf => "remove the source of",
        Op::RemoveUnfinished => "remove unfinished",
        Op::RenameIntoPlace => "rename into place",
        Op::RenameTo => "rename to",
        Op::Replace => "replace",
        Op::ReserveRoomFor => "reserve room for",
        Op::Resume => "resume",
        Op::Run => "run",
        Op::RunACommandOn => "run a command on",
        Op::Send => "send",
        Op::SendListOfNamesTo => "send list of names to",
        Op::SendPastSshTo => "send past ssh to",
        Op::SendPatterns => "send patterns",
        Op::SendToTheOtherSide => "send to the other side",
        Op::Serve => "serve",
        Op::SetAttributesOf => "set attributes of",
        Op::SetAclOf => "set the ACL of",
        Op::SetLengthOf => "set length of",
        Op::SetModeOf => "set mode of",
        Op::SetOwnerOf => "set owner of",
        Op::HoldOwnerOf => "hold owner and mode in an attribute of",
        Op::KeepAllOf => "keep all of",
        Op::HoldEveryOwner => "hold every owner and mode",
        Op::SetTimesOf => "set times of",
        Op::StartAThreadToConnectTo => "start a thread to connect to",
        Op::StartAThreadToReceive => "start a thread to receive",
        Op::StartAThreadToSend => "start a thread to send",
        Op::StartBcmrOn => "start bcmr on",
        Op::Stat => "stat",
        Op::StatFileSystemOf => "stat file system of",
        Op::StatUnfinished => "stat unfinished",
        Op::Sync => "sync",
        Op::SyncDirectory => "sync directory",
        Op::SyncDirectoryOf => "sync directory of",
        Op::SyncTheFileSystemOf => "sync the file system of",
        Op::TakeThePipes => "take the pipes",
        Op::TalkTo => "talk to",
        Op::Truncate => "truncate",
        Op::Understand => "understand",
        Op::Command => "tell the run at",
        Op::HearCommands => "hear commands at",
        Op::Unmark => "unmark",
        Op::UseBcmrOn => "use bcmr on",
        Op::UseManifest => "use manifest",
        Op::Verify => "verify",
        Op::WaitForFurtherConnectionsOf => "wait for further connections of",
        Op::Write => "write",
        Op::WriteInto => "write into",
        Op::WriteIntoTheManifest => "write into the manifest",
        Op::WriteManifest => "write manifest",
        Op::WriteSessionOf => "write session of",
        Op::WriteThroughLink => "write through link",
        Op::Delete => "delete",
        Op::DeleteIn => "delete anything in",
        Op::KeepOld => "keep what was there, of",
        Op::Undo => "undo what was done to",
        Op::ReadReceipt => "read receipt",
        Op::WriteReceipt => "write the receipt of what becomes of",
        Op::KeepSnapshotIn => "keep a snapshot in",
        Op::ThinOut => "thin out",
        Op::ReadPlanOfSync => "read plan",
        Op::ApplyPlan => "do what was planned with",
        Op::PlanSync => "plan a sync of",
        Op::Remember => "remember where it is mounted, of",
        Op::Unknown(number) => return format!("do what only a newer bcmr has words for (number {number}):"),
    };
    words.to_owned()
}

/// A reason, with what it speaks of; names in it are as they came.
pub fn note(note: &Note) -> String {
    let mut about: Vec<String> = note
        .about
        .iter()
        .map(|about| match about {
            About::Text(text) => text.clone(),
            About::Note(inner) => self::note(inner),
        })
        .collect();
    // It stands in a command.
    if matches!(note.reason, Reason::OldKept | Reason::OldKeptThere) {
        let path = about.join(":");
        let path = if path.starts_with('-') { format!("./{path}") } else { path };
        about = vec![shell_word(path.as_ref())];
    }
    let Some(words) = reason(note.reason) else {
        let mut all =
            format!("a reason that only a newer bcmr has words for (number {})", note.reason.number());
        about.iter().for_each(|one| all.extend([": ", one]));
        return all;
    };
    let mut all = String::with_capacity(words.len());
    let mut rest = words;
    while let Some((before, number, behind)) = next_room(rest) {
        all.push_str(before);
        all.push_str(about.get(number).map_or("", String::as_str));
        rest = behind;
    }
    all + rest
}

/// A reason that stands alone.
pub fn of(reason: Reason) -> String {
    note(&reason.into())
}

/// What stands before the first `{n}`, its number, and what stands behind it.
fn next_room(words: &str) -> Option<(&str, usize, &str)> {
    let (before, behind) = words.split_once('{')?;
    let (number, behind) = behind.split_once('}')?;
    Some((before, number.parse().ok()?, behind))
}

/// The words of a reason.
pub fn reason(reason: Reason) -> Option<&'static str> {
    Some(match reason {
        Reason::NotWhatWasSent => "what arrived differs from what was sent",
        Reason::SourceEndedEarly => "the source ended before its size",
        Reason::SetidLeftOut => "setuid and setgid left out, because it has another owner",
        Reason::NoNameForStage => "no name could be made",
        Reason::BecameDirectory => "it became a directory",
        Reason::SameFile => "source and destination are the same file",
        Reason::BecameAnother => "it became another one meanwhile",
        Reason::SourceChangedWhileRead => "the source changed while it was read",
        Reason::Interrupted => "interrupted",
        Reason::NoBlocksToMerge => "a file of one block has no blocks to merge",
        Reason::NotWhatWasRead => "what landed differs from what was read",
        Reason::ChangedWhileCompared => "it changed while it was compared",
        Reason::GrewWhileRead => "it changed while it was read; as many bytes as it had at first were copied",
        Reason::DirectoryOverFile => "cannot overwrite a non-directory with a directory",
        Reason::MadeByThisRun => "this run is making it already, from another source",
        Reason::FilledIsGone => "what was filled is gone, or something else is in its place",
        Reason::NothingPublished => {
            "nothing of it was published, because something in it could not be finished or taken back"
        }
        Reason::TakenByThisRun => "it is there for another source of this run, and both names are one here",
        Reason::NotItsBeginning => "it is not the beginning of the source",
        Reason::FileOverDirectory => "cannot overwrite a directory with a non-directory",
        Reason::NotWritable => "it is a device, FIFO or socket",
        Reason::LongerThanSource => "it is longer than the source",
        Reason::AnotherCopyRuns => "another copy to this name is under way",
        Reason::TakenAwayByOthers => "others keep taking it away",
        Reason::WorkerStopped => "a worker stopped unexpectedly",
        Reason::AddedToAnother => "what was there, with what was added to it, differs from the source",
        Reason::KeepsNothing => "what is written into it cannot be read back",
        Reason::NoDirectReads => "this file system has no reads past the cache",
        Reason::RecordedBlockDiffers => "a recorded block does not fit; going on before it",
        Reason::SessionDamaged => "the session file is damaged",
        Reason::SourceChangedSince => "the source has changed since",
        Reason::OtherOptions => "the session was made with other options",
        Reason::UnfinishedIsGone => "the unfinished file is gone",
        Reason::UnfinishedIsAnother => "the unfinished file is not the one of the session",
        Reason::UnfinishedOfAnotherUser => "the unfinished file belongs to another user",
        Reason::UnfinishedTooShort => "the unfinished file is shorter than its session says",
        Reason::ReservedName => {
            "this name belongs to what an interrupted copy leaves in this very directory; under another name it can be copied"
        }
        Reason::NameOver255 => "its name is longer than 255 bytes",
        Reason::OwnerWithoutNumber => "its owner has no number",
        Reason::LongerThanFilesAre => "it is longer than a file can be",
        Reason::ListedNameNotRelative => "names in a list are relative to the source directory",
        Reason::ListedNameWithDotDot => "names in a list may not contain '..'",
        Reason::ListedNameIsSource => "this names the source directory itself",
        Reason::NoSuchName => "no file has a name like this",
        Reason::IsDirectory => "it is a directory",
        Reason::LinkLoop => "symbolic links lead in a circle here",
        Reason::AttributesTooLarge => "its attributes are more than 256 KiB",
        Reason::AttributesDoNotFit => {
            "they are larger than the file system lets the attributes of one file be"
        }
        Reason::TimesNotHeld => "the file system cannot hold them, and has the nearest that it can",
        Reason::EmptyPath => "the path is empty",
        Reason::NameWithNul => "the name holds a NUL byte",
        Reason::LeadsOutside => "it leads outside",
        Reason::DanglingLink => "the symbolic link points to nothing",
        Reason::AnotherDirectoryThere => "another directory was put in its place meanwhile",
        Reason::ServerRemovesNothing => "a server confined by --root removes nothing that is named to it",
        Reason::LinkAtConfinedServer => {
            "it is a symbolic link, and a server confined by --root follows none; -P copies it as a link"
        }
        Reason::ThreadStopped => "a thread has stopped",
        Reason::NoStream => "there is no stream",
        Reason::EndedWithoutLastWord => "the other side ended without a last word",
        Reason::ClosedByPeer => "the other side closed the connection",
        Reason::StoreOfAnotherUser => "the store's directory belongs to another user",
        Reason::StoreOpenToOthers => "the store's directory is open to other users",
        Reason::StoreLockNotOurs => "the store's lock is not a file of ours",
        Reason::EndedInMessage => "the connection ended in the middle of a message",
        Reason::ConnectionThreadStopped => "a thread of the connection has stopped",
        Reason::WayOfSshUnknown => "where ssh connects to is not known here",
        Reason::NoAddress => "there is no address that one can connect to",
        Reason::UnknownToken => "the first connection does not know this token",
        Reason::NoAnswerYet => "no answer has come",
        Reason::OtherVersion => "it speaks another version of the protocol",
        Reason::ClosedAtOnce => "the connection was closed at once",
        Reason::DidNotJoin => "it did not join the first connection",
        Reason::HostWithAt => "the host holds '@'",
        Reason::EmptyProgram => "the program's name is empty",
        Reason::ProgramWithDash => "the program's name begins with a dash",
        Reason::SshCouldNotConnect => "ssh could not connect",
        Reason::NoPipes => "it has no pipes",
        Reason::SshEndedBadly => "ssh did not end in order",
        Reason::OneSourceDirectory => "a list of names needs exactly one source directory",
        Reason::MadeByCopyItself => "this is what the copy itself makes",
        Reason::NotADirectory => "it is not a directory",
        Reason::DirectoryWentAway => "the directory went away",
        Reason::EmptyName => "an empty name",
        Reason::KeptAtSource => "what was copied there is kept at the source as well",
        Reason::SyncFailedSoKept => {
            "a sync failed there, so what was copied there is kept at the source as well"
        }
        Reason::ChangedAfterCopy => {
            "it changed after it was copied, so it stays; the copy is of what it was before"
        }
        Reason::NotItsCopy => {
            "what is at the destination is no copy of it (any more), so it stays; an earlier run had copied all of the directory"
        }
        Reason::PlanDamaged => "it is damaged",
        Reason::PlanOfOtherVersion => "it is of another version of bcmr",
        Reason::PlanThere => "a plan is there already",
        Reason::NoPlan => "no plan is there",
        Reason::ResultDamaged => "a result is damaged; that shard is to be run again",
        Reason::StageOfPlanGone => "what the shards have copied is gone; make another plan",
        Reason::StrangersInStage => {
            "what the shards have copied is not what the plan says; nothing was published"
        }
        Reason::ChangedSincePlan => "it has changed since the plan was made",
        Reason::NotAllCopied => "not everything of the shard was copied",
        Reason::NoShardLeft => "every shard is done or is being worked at",
        Reason::FinishAtWork => "the plan is being finished",
        Reason::AlreadyFinished => "the plan is finished",
        Reason::DestinationIsThere => "it is there already",
        Reason::NotListedWhole => "not everything below the source could be looked at, so no plan was made",
        Reason::NoDirectory => "it is no directory",
        Reason::ChangedWhileRead => "it changed while it was read",
        Reason::NoFileInTheWay => "something that is no file is in the way",
        Reason::AnotherWritesManifest => "another copy is writing it",
        Reason::NameNotUtf8 => "its name is not UTF-8, which a manifest cannot say",
        Reason::LandedElsewhere => "the other machine says that it landed, and it is not below the target",
        Reason::OnlyCompleteCopy => "only a complete copy gets one",
        Reason::NoManifestLine => "it is no line of a manifest",
        Reason::WronglyEscaped => "its name is escaped wrongly",
        Reason::ItsNameWithNul => "its name holds a NUL byte",
        Reason::ItsNameNotRelative => "its name is not relative",
        Reason::ItsNameWithDotDot => "its name holds '..'",
        Reason::NamesNothing => "it names nothing",
        Reason::PathLeadsThrough => "a directory cannot be moved out from under the path that leads to it",
        Reason::SlashMeansTarget => "with the slash at its end it means what the link leads to",
        Reason::NotEmpty => "the directory there is not empty",
        Reason::OneSourceOneName => "exactly one source can go to exactly this name",
        Reason::LinkMayBeTheirs => {
            "it is a symbolic link to a directory, and the other machine may have put it there: with a slash behind it, or with --follow-destination, it is followed"
        }
        Reason::LinkWouldBeFollowed => {
            "it is a symbolic link, and another machine may have put it there: remove it, or with --follow-destination it is followed"
        }
        Reason::LinkOfAnotherUser => {
            "it is another user's symbolic link, in a directory where everybody may put one: name what it leads to"
        }
        Reason::LinkOfTheSystem => {
            "it is a symbolic link to a device, FIFO or socket, or into /proc, and what comes from another machine does not replace it"
        }
        Reason::TargetOfSeveralNoDirectory => "the target of several sources is not a directory",
        Reason::TargetNoDirectory => "the target is not a directory",
        Reason::WouldWriteThroughLink => "not writing through a dangling symbolic link",
        Reason::LeadsToDirectory => "it leads to a directory",
        Reason::SlashButNoDirectory => "the target ends in a slash, but is no directory",
        Reason::SameDirectory => "source and destination are the same directory",
        Reason::DidNotCome => "it did not come, and the other side did not say why",
        Reason::TooManyLinks => {
            "more files with several names than are remembered; --no-preserve=links copies each by itself"
        }
        Reason::FirstNameUnsettled => "its first name was never settled",
        Reason::AlreadyThere => "it is there already",
        Reason::NoOtherMachine => "no other machine is named",
        Reason::NoSource => "no source given",
        Reason::ConnectionClosed => "the connection was closed",
        Reason::NoToken => "no token came",
        Reason::DirectNotOffered => "the other side does not offer it; going on over ssh",
        Reason::NoRendezvous => "no rendezvous came",
        Reason::ListOver8MiB => "the bcmr over there takes lists of 8 MiB at most",
        Reason::ListOver32MiB => "a list for another machine has less than 32 MiB",
        Reason::ListOverMillion => "a list for another machine has 1,048,576 names at most",
        Reason::AnswerToAnother => "an answer to another question",
        Reason::NothingNamed => "nothing was named",
        Reason::IsRoot => "it is the root directory",
        Reason::IsCurrentDirectory => "it is the current directory",
        Reason::HoldsCurrentDirectory => "it holds the current directory",
        Reason::IsDots => "`.` and `..` are not removed",
        Reason::OtherFileSystem => "it is on another file system",
        Reason::IsMountPoint => "it is a mount point",
        Reason::ServerOnlyReads => "this server only lets read",
        Reason::ServerFollowsNoLink => "this server follows no symbolic link at the destination's name",
        Reason::NotOverSsh => "not reached over ssh",
        Reason::NotAgreedOn => "not agreed on",
        Reason::TooManyStreams => "too many streams",
        Reason::SomethingElseThere => "something else has taken its place",
        Reason::NoRegularFileAnyMore => "it is no regular file any more",
        Reason::NothingCame => "nothing came",
        Reason::TooManyOperands => "too many operands at once",
        Reason::PathTooLongForHashes => "its path is too long for a list of hashes",
        Reason::PeerLeft => "the other side went before it was done",
        Reason::NotOnThisDisk => "not on this disk",
        Reason::PieceWhileAllWait => "pieces of a file while all wait for those of another",
        Reason::PieceNotAskedAgain => "a piece again that was not asked for",
        Reason::PieceBeforeWanted => "a piece before it was wanted",
        Reason::PieceDoesNotFit => "a piece that does not fit",
        Reason::PieceOutOfOrder => "a piece twice, or out of order",
        Reason::BlockWithoutValue => "a block without its value",
        Reason::ValueInsideBlock => "a value in the middle of a block",
        Reason::ValuesNotAsked => "values that were not asked for",
        Reason::RangeBeyondEnd => "a range beyond the end of its file",
        Reason::RangeNotSent => "a range of a file that is not being sent, or too many",
        Reason::BlocksBeyondEnd => "blocks beyond the end of their file",
        Reason::TooManyValues => "too many values at once",
        Reason::AnswerAboutNoBlocks => "an answer about blocks that were not asked about",
        Reason::AnswerAboutOtherBlocks => "an answer about other blocks than were asked about",
        Reason::LastMessageAnswersNothing => "a last message that answers nothing",
        Reason::SummaryTooEarly => "a summary before everything was sent",
        Reason::QuestionToNobody => "a question that this policy does not ask",
        Reason::PingWithoutToken => "a ping without a token",
        Reason::BadJoin => "no proper request to join",
        Reason::NoGreeting => "the first message is no greeting",
        Reason::LinkWhereFollowed => "a symbolic link where links were to be followed",
        Reason::PieceOfOtherLength => "a piece of another length than it says",
        Reason::BadAttributeName => "an attribute's name",
        Reason::BadName => "a name that is none",
        Reason::BadLinkTarget => "a link's target",
        Reason::DirectoryTwice => "a directory of one name with another that is under way",
        Reason::DirectoryInNone => "a directory in none",
        Reason::DirectoryThatIsNone => "a directory that is none",
        Reason::NameNotAsked => "a name that was not asked for",
        Reason::OtherOperand => "another operand than was announced",
        Reason::EntriesOfClosed => "entries of a directory that is not open",
        Reason::DirectoryAmongFiles => "a directory among files",
        Reason::ContentsNotAnnounced => "contents that were not announced",
        Reason::ContentsDoNotFit => "contents that do not fit their entries",
        Reason::HashNotContent => "a hash where a content was wanted",
        Reason::MoreContentsThanEntries => "more contents than entries",
        Reason::ContentsNotWaitedFor => "contents of a batch that waits for none",
        Reason::ContentsOfNothing => "contents of nothing",
        Reason::LargeThatIsNone => "a large file that is none",
        Reason::TooManyOffers => "more offers than there may be",
        Reason::BlocksBehindEnd => "blocks behind the end of their file",
        Reason::BlocksNotAsked => "blocks of a file that were not asked about",
        Reason::ProofOfNothing => "a proof of nothing",
        Reason::MoreProofsThanBlocks => "more proofs than blocks",
        Reason::EndBeforeSettled => "an end before everything was settled",
        Reason::EndOfClosed => "the end of a directory that is not open",
        Reason::PackedWithoutLength => "packed contents without their length, or too long",
        Reason::NoneMatches => "nothing there has this name, or matches it",
        Reason::TooManyNames => "a list of more names than there may be",
        Reason::NoRequest => "a message that is no request",
        Reason::NamesWithoutRequest => "names for a request that has none",
        Reason::NoTransfer => "no transfer",
        Reason::ListNeedsOneDirectory => "a list of names needs one directory",
        Reason::ContentsNotAsked => "contents that were not asked for, or a directory among files",
        Reason::LargeAfterEnd => "a large file after the end",
        Reason::OperandTooMany => "an operand too many, or with an id of its own",
        Reason::OperandsOfTwoMachines => "operands of two machines",
        Reason::OperandNotAsked => "an operand that was not asked for, or was left out",
        Reason::OperandOfOtherKind => "an operand of another kind than it had before",
        Reason::DirectoryWithOwnId => "a directory with an id of its own",
        Reason::TooManyDirectories => "more open directories than there may be",
        Reason::BatchTwice => "a batch twice",
        Reason::TooManyBatches => "more batches than there may be",
        Reason::FileTwice => "a file twice",
        Reason::FileNotOffered => "a file that was not offered",
        Reason::PatternNotText => "a pattern that is no text",
        Reason::CheckpointNotBlocks => "a checkpoint that is no whole number of blocks",
        Reason::FinerThanTold => "a question about a part of a basis that is not there, or too many of them",
        Reason::PatchOfNothing => "a piece made of what is not here",
        Reason::SumsNotAsked => "sums of chunks that were not asked for",
        Reason::SumsOutOfOrder => "sums of chunks out of their order",
        Reason::TooManySums => "more sums of chunks than are kept",
        Reason::NumberUnknown => "a number of the policy that this bcmr does not know",
        Reason::TooMuchDuringQuestion => "too much was sent while a question was open",
        Reason::WaitsForMessage => "a message",
        Reason::WaitsForRoom => "room to send",
        Reason::WaitsForSettling => "what was sent to be settled",
        Reason::WaitsForWord => "the word that a large file was whole",
        Reason::WaitsForValues => "values of blocks",
        Reason::WaitsForContent => "content of a large file",
        Reason::WaitsForPerson => "a person's answer",
        Reason::WaitsForSomething => "something",
        Reason::PeerSaysNothing => "the other side says nothing but that it is there",
        Reason::PeerWorks => "the other side says that it works",
        Reason::PeerAsksPerson => "the other side asks a person",
        Reason::BySize => "size",
        Reason::ByMtime => "mtime",
        Reason::ByContent => "content",
        Reason::ByType => "type",
        Reason::ByMode => "mode",
        Reason::ByOwner => "owner",
        Reason::ByDevice => "device",
        Reason::ByTarget => "target",
        Reason::Missing => "missing",
        Reason::OnlyThere => "only at the destination",
        Reason::ByOther => "different",
        Reason::ByAcl => "acl",
        Reason::ByAttributes => "attributes",
        Reason::AwaitsGreeting => "waiting for a greeting",
        Reason::AwaitsFirstRequest => "waiting for the first request",
        Reason::AwaitsWelcome => "waiting for the answer to the greeting",
        Reason::AwaitsRequest => "waiting for a request",
        Reason::WithoutRequest => "without a request",
        Reason::AwaitsInfo => "waiting for what Stat found",
        Reason::AwaitsPages => "waiting for pages of a directory",
        Reason::AwaitsOk => "waiting for Ok",
        Reason::AwaitsUsed => "waiting for what Usage counted",
        Reason::AwaitsUndone => "waiting for what Undo tells",
        Reason::AwaitsToken => "waiting for a token",
        Reason::AwaitsRendezvous => "waiting for a rendezvous",
        Reason::Sending => "sending",
        Reason::Receiving => "receiving",
        Reason::SendingBeside => "sending over a further stream",
        Reason::ReceivingBeside => "receiving over a further stream",
        Reason::SenderHasEnded => "after an error of the sender, before Done",
        Reason::ReceiverHasEnded => "after the last message of the receiver, before Done",
        Reason::PeerHasEnded => "after the last message of the other side",
        Reason::WithoutTransfer => "on a stream that no transfer uses",
        Reason::LastMessageUnanswered => "it has not answered the last message",
        Reason::Said => "{0}",
        Reason::Because => "{0}: {1}",
        Reason::KindIs => "it is a {0}",
        Reason::KindBecame => "it became a {0} meanwhile",
        Reason::KindNotFile => "it is no regular file but a {0}",
        Reason::KindAtConfinedServer => "it is a {0}, and a server confined by --root makes none",
        Reason::ThereForAnother => "it is there for '{0}' of this run and cannot be for '{1}' as well",
        Reason::EarlierSource => "an earlier source, '{0}', already becomes '{1}'",
        Reason::EarlierOperand => "an earlier source already becomes '{0}'",
        Reason::HeldUnreadable => "its attribute user.rsync.%stat is not one of --fake-super",
        Reason::HeldAclUnreadable => {
            "its attribute user.rsync.%aacl or user.rsync.%dacl is not one of --fake-super"
        }
        Reason::AclNotHeld => "its ACL is left out: it is none that --fake-super holds",
        Reason::OwnersNotHeld => {
            "{0} entries lack their owner, mode or kind: the file system has no user attributes"
        }
        Reason::OwnersNotKept => "entries whose owner was not kept: {0}; only root may give files away",
        Reason::NotRemovedAgain => "and could not be removed again ({0})",
        Reason::PeerWaits => "the other side for {0}",
        Reason::WaitsAtBlock => "{0} (file {1}, block {2})",
        Reason::Stalled => "nothing has moved for {0} s: this side waits for {1}, {2}",
        Reason::AnsweredBefore => "file {0} was answered before",
        Reason::FromBeyondEnd => "file {0} is to be sent from beyond its end",
        Reason::DirectoryNotAsked => "directory {0} was not asked about",
        Reason::NotReceivers => "message {0} is not the receiver's to send now",
        Reason::FileNotOnOffer => "file {0} is not on offer",
        Reason::BatchNotWaiting => "batch {0} is not waiting",
        Reason::EntryNotThere => "entry {0} of batch {1} is not to be had",
        Reason::Silence => "nothing was heard for {0} s",
        Reason::BadMessage => "message {0}: {1}",
        Reason::MessageOfLength => "message {0} of {1} bytes",
        Reason::NoMessage => "this is no message (its first bytes are \"{0}\")",
        Reason::NoAnswerAt => "{0} does not answer",
        Reason::AnotherAnswersAt => "who answers at {0} is not the server that ssh is connected to",
        Reason::LoginWithoutAnswer => "the login there prints text and no bcmr answers behind it: {0}",
        Reason::LoginPassedOver => "the login there prints text, which is passed over: {0}",
        Reason::NoPlaceHere => "message {0} has no place here",
        Reason::BadGreeting => "the greeting: {0}",
        Reason::EmptyWord => "the {0} is empty",
        Reason::LongWord => "the {0} is too long",
        Reason::WordWithDash => "the {0} begins with a dash",
        Reason::WordHolds => "the {0} holds {1}",
        Reason::ProgramHolds => "the program's name holds {0}",
        Reason::NoProgram => "there is no {0} there",
        Reason::ProgramNotRun => "{0} cannot be run there",
        Reason::NoBcmrThere => "what answers there is no bcmr, or the shell there prints something: {0}",
        Reason::ServeEnded => "{0} serve ended there with status {1}",
        Reason::OtherKey => "its key is not the one that is recorded",
        Reason::OtherKeyAt => "its key is not the one that is recorded ({0})",
        Reason::OtherKeyIs => "its key is not the one that is recorded; it is {0} now",
        Reason::OtherKeyAtIs => "its key is not the one that is recorded ({0}); it is {1} now",
        Reason::Line => "line {0}: {1}",
        Reason::DestinationInside => "the destination '{0}' is inside it",
        Reason::MoreDidNotCome => "{0} more names did not come, and the other side did not say why",
        Reason::NotSendersMessage => "a message that a sender does not send here: {0}",
        Reason::BadPiece => "a piece: {0}",
        Reason::BadContents => "contents: {0}",
        Reason::FromStore => {
            "{0} bytes came from the store of blocks at the destination, and not over the line"
        }
        Reason::FromRun => "{0} bytes had come before in this run, and did not cross the line again",
        Reason::FromBasis => "{0} bytes were reused from what was there before, and did not cross the line",
        Reason::SaidAndCame => "it was said to have {0} bytes, and {1} came",
        Reason::ConnectingAgain => "connecting again in {0} s, {1} more tries after that",
        Reason::FewerConnections => {
            "{0} of {1} further connections could not be opened, which is done without asking for anything: {2}"
        }
        Reason::OverSsh => "{0}; going on over ssh",
        Reason::PastSsh => "the data goes to {0}, sealed, past ssh",
        Reason::StoreUnusable => {
            "everything is sent: the store of blocks at the destination cannot be used: {0}"
        }
        Reason::PatternsTooLarge => {
            "more than another machine takes: {0} globs or regular expressions, {1} bytes each, {2} bytes of globs, {3} of regular expressions"
        }
        Reason::StartsOver => "{0}: starts over: {1}",
        Reason::OutOfPlace => "message {0} has no place here: {1}",
        Reason::HoldsSource => "it holds the source",
        Reason::HoldsSomethingElse => "a file of another kind is there, and stays; name a new one",
        Reason::KeptElsewhere => "what is kept must be on the file system of the destination",
        Reason::BasisElsewhere => "a hard link cannot lead to another file system, and DST is on another one",
        Reason::KeptInSource => {
            "what is kept cannot be in the source, unless it is left out there: the next run would copy it"
        }
        Reason::KeptInDestination => "what is kept cannot be where the destination itself is",
        Reason::ChangedSinceRun => "it has changed since",
        Reason::HoldsWhatCameLater => "it holds what came later",
        Reason::KeptNoMore => "what was kept of it is not there any more",
        Reason::NoReceipt => "it is no receipt of a sync",
        Reason::ReceiptCutOff => {
            "it is cut off within a line, as by a power cut; what is whole in it is undone, and what was done after that stays"
        }
        Reason::OtherDestination => "another directory is there than the one that was synced",
        Reason::RulesLeftOut => {
            "its .gitignore or .bcmrignore is itself left out, so what that keeps is not known there, and nothing below was deleted"
        }
        Reason::RulesToCome => {
            "its .gitignore or .bcmrignore has yet to come, so what that keeps is not known there, and nothing below was deleted"
        }
        Reason::RulesInTheWay => {
            "a directory that holds something is in the way of its .gitignore or .bcmrignore, so what that keeps is not known there, and nothing below was deleted"
        }
        Reason::RulesInNoFile => "it is no regular file, so what it was to leave out is not known",
        Reason::TooManyRules => "more directories have a .gitignore or .bcmrignore than are remembered",
        Reason::HoldsKept => "it holds what is kept",
        Reason::NoTrash => "there is no trash that can be used for it",
        Reason::SnapshotThere => "there is one of that moment",
        Reason::NewerSnapshot => "there is a newer one: {0}",
        Reason::SnapshotRuns => "another run is making one",
        Reason::SnapshotIncomplete => {
            "not all of the source is in it, so it does not appear; the same command goes on with it"
        }
        Reason::NotPlannedAnyMore => "it was planned, and is not to be done any more",
        Reason::NotPlanned => "it is to be done, and was not planned",
        Reason::PlannedOtherwise => "it is not what was planned with any more",
        Reason::NoPlanOfSync => "it is no plan of a sync",
        Reason::SidesNotTold => "what both sides are like was not told of everything",
        Reason::TooLongForPlan => "more would be done than a plan holds; plan parts of it",
        Reason::SnapshotMade => {
            "the snapshot {0} is there: the connection was lost only after it was complete"
        }
        Reason::OldKeptThere => "what was there is kept there; to undo it all, run bcmr undo {0}",
        Reason::NotBelowRoot => "what it is about is not below the root of this server",
        Reason::ReceiptTooLarge => "it says more than is undone at once; a bcmr that has no root takes more",
        Reason::TreeUnasked => "the tree of a plan was said of no list of names to one place",
        Reason::PlanWithoutWay => "the plan is of another machine, and how to get there was not said",
        Reason::PlanMergesHere => "only on one machine is a tree put into a destination that is there",
        Reason::OnlyCopiesBetweenMachines => "what is removed has no destination on another machine",
        Reason::IdentityNotTold => "the bcmr there is too old to say which directory it is",
        Reason::PlanSyncsThereUnfiltered => {
            "a plan of a sync to another machine takes no filters, as its end goes through all of the source"
        }
        Reason::TreeLacksSome => {
            "what the shards have copied is not whole, or the source lacks some of it by now; make another plan"
        }
        Reason::KeepingUnasked => "what is to be kept was said of no copy of one directory's contents",
        Reason::OldKept => "what was there is kept; to undo it all, run bcmr undo {0}",
        Reason::SourceIsEmpty => "the source is empty; is everything mounted?",
        Reason::SnapshotEmpty => {
            "the source is empty, or all that is in it is left out, and the last snapshot is not empty; is everything mounted?"
        }
        Reason::ClosedMayBeEmpty => "if nothing is in it, it would go; whether that is so cannot be seen",
        Reason::NotAllIsThere => "not all of the source has arrived, so what only the destination has stays",
        Reason::SourceBelowDestination => {
            "the source is inside the destination, and would be deleted with it"
        }
        Reason::SourceIsNoDirectory => "the source is no directory",
        Reason::NotMountedWhereItWas => {
            "the source was on a file system of its own when it was synced last, and is not now"
        }
        Reason::OutOfTheWay => {
            "directories that were in the way of something else are gone now, and that is still to come"
        }
        Reason::TooMuchToDelete => "{0} of {1} entries would go, which is more than may go at once",
        Reason::RestNotCompared => {
            "its first {0} bytes are how the source begins; the {1} behind them are compared by the copy itself"
        }
        Reason::NoSuchShard => "it has no such shard; the last one is {0}",
        Reason::ShardsMissing => "without a result are the shards {0}",
        Reason::ShardAtWork => "shard {0} is being worked at by {1}",
        Reason::PlanDeletesUnfiltered => {
            "a plan that deletes leaves nothing out: --delete and filters do not go together here"
        }
        Reason::PlanLostSome => "lost attributes or names in the manifest: {0}; each was told when it was",
        Reason::PlanInSource => "the plan's directory '{0}' would be inside it",
        Reason::PlanInDestination => "it would be deleted itself: it is in the destination",
        Reason::SourceIsAnother => "another directory is there than when the plan was made",
        Reason::NotAllTakenAway => "not everything of the shard was dealt with",
        Reason::ChangedWhileTaken => "it is not what it was when the plan was made; it stays",
        Reason::Unknown(_) => return None,
    })
}
