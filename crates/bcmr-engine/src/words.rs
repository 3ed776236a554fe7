//! What is said, as data: what was tried, why it failed, and what that is about.
//!
//! Must not know how any of it is worded; that is the person's side's. The numbers travel to other machines and to other
//! versions (docs/protocol.md), so a number keeps its meaning for ever, and a new word gets a new one.

/// An enum whose values have numbers, with one value for those of a newer version.
macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($value:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[allow(missing_docs, reason = "the names say it, and the words for them stand in `crates/bcmr`")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($value,)*
            /// What only a newer version knows.
            Unknown(u16),
        }

        impl $name {
            /// All that are known here.
            pub const ALL: &[$name] = &[$($name::$value,)*];

            /// The number that travels; never 0.
            #[must_use]
            pub fn number(self) -> u16 {
                match self {
                    $($name::$value => $number,)*
                    $name::Unknown(number) => number,
                }
            }

            /// What has this number.
            #[must_use]
            pub fn of_number(number: u16) -> $name {
                match number {
                    $($number => $name::$value,)*
                    unknown => $name::Unknown(unknown),
                }
            }
        }
    };
}

numbered! {
/// What was being done, as a verb.
Op {
    AgreeWith = 1,
    Answer = 2,
    AppendTo = 3,
    Change = 4,
    CleanUp = 5,
    CloneTo = 6,
    Compare = 7,
    ConfineTo = 8,
    ConnectTo = 9,
    Copy = 10,
    CopyAllOf = 11,
    CopyByScp = 12,
    CopyByScpTo = 13,
    CopyInto = 14,
    CopyTo = 15,
    Count = 16,
    Create = 17,
    Cut = 18,
    CutSessionOf = 19,
    DisconnectFrom = 20,
    Encode = 21,
    Enter = 22,
    FindTheFirstNameOf = 23,
    Finish = 24,
    Follow = 25,
    Greet = 26,
    Hash = 27,
    HoldWhatIsReadFor = 28,
    Join = 29,
    KeepEveryOwner = 30,
    KeepTheLinksOf = 31,
    Link = 32,
    List = 33,
    ListDirectory = 34,
    Listen = 35,
    MakeANonce = 36,
    MakeDirectory = 37,
    MakeHardLink = 38,
    MakeSpecialFile = 39,
    MakeSymbolicLink = 40,
    Mark = 41,
    MergeInto = 42,
    MergeIntoDirectory = 43,
    Move = 44,
    MoveTo = 45,
    NameAStageFor = 46,
    Open = 47,
    OpenAllConnectionsTo = 48,
    OpenDirectory = 49,
    OpenForWriting = 50,
    OpenRoot = 51,
    OpenSessionOf = 52,
    OpenTarget = 53,
    OpenTargetDirectory = 54,
    OpenUnfinished = 55,
    ParsePattern = 56,
    PublishDirectory = 57,
    PutBcmrOn = 58,
    Read = 59,
    ReadAttributesOf = 60,
    ReadBack = 61,
    ReadRules = 62,
    ReadLink = 63,
    ReadListOfNames = 64,
    ReadListOfNamesBelow = 65,
    ReadManifest = 66,
    ReadNames = 67,
    ReadNamesBelow = 68,
    ReadPolicy = 69,
    ReadUnfinished = 70,
    Receive = 71,
    ReceiveFrom = 72,
    Remove = 73,
    RemoveAttributesOf = 74,
    RemoveDirectory = 75,
    RemoveSessionOf = 76,
    RemoveSource = 77,
    RemoveTheSourceOf = 78,
    RemoveUnfinished = 79,
    RenameIntoPlace = 80,
    RenameTo = 81,
    Replace = 82,
    ReserveRoomFor = 83,
    Resume = 84,
    Run = 85,
    RunACommandOn = 86,
    Send = 87,
    SendListOfNamesTo = 88,
    SendPastSshTo = 89,
    SendPatterns = 90,
    SendToTheOtherSide = 91,
    Serve = 92,
    SetAttributesOf = 93,
    SetLengthOf = 94,
    SetModeOf = 95,
    SetOwnerOf = 96,
    SetTimesOf = 97,
    StartAThreadToConnectTo = 98,
    StartAThreadToReceive = 99,
    StartAThreadToSend = 100,
    StartBcmrOn = 101,
    Stat = 102,
    StatFileSystemOf = 103,
    StatUnfinished = 104,
    Sync = 105,
    SyncDirectory = 106,
    SyncDirectoryOf = 107,
    SyncTheFileSystemOf = 108,
    TakeThePipes = 109,
    TalkTo = 110,
    Truncate = 111,
    Understand = 112,
    Unmark = 113,
    UseBcmrOn = 114,
    UseManifest = 115,
    Verify = 116,
    WaitForFurtherConnectionsOf = 117,
    Write = 118,
    WriteInto = 119,
    WriteIntoTheManifest = 120,
    WriteManifest = 121,
    WriteSessionOf = 122,
    WriteThroughLink = 123,
    Delete = 124,
    DeleteIn = 125,
    Remember = 126,
    Plan = 141,
    ReadPlan = 142,
    WritePlan = 143,
    CopyShardOf = 144,
    FinishPlan = 145,
    Claim = 146,
    HearCommands = 160,
    Command = 161,
    KeepOld = 181,
    Undo = 182,
    ReadReceipt = 183,
    WriteReceipt = 184,
    KeepSnapshotIn = 185,
    ThinOut = 186,
    ReadPlanOfSync = 187,
    ApplyPlan = 188,
    PlanSync = 210,
    HoldOwnerOf = 230,
    HoldEveryOwner = 231,
    SetAclOf = 232,
    KeepAllOf = 240,
    ReadSource = 250,
}}

numbered! {
/// Why something is as it is. Most of them stand alone; some speak of something, which [`Note`] adds in its order.
Reason {
    // Of files and directories, connections and requests.
    NotWhatWasSent = 1,
    SourceEndedEarly = 2,
    SetidLeftOut = 3,
    NoNameForStage = 4,
    BecameDirectory = 5,
    SameFile = 6,
    BecameAnother = 7,
    SourceChangedWhileRead = 8,
    Interrupted = 9,
    NoBlocksToMerge = 10,
    NotWhatWasRead = 11,
    ChangedWhileCompared = 12,
    GrewWhileRead = 13,
    DirectoryOverFile = 14,
    MadeByThisRun = 15,
    FilledIsGone = 16,
    NothingPublished = 17,
    TakenByThisRun = 18,
    NotItsBeginning = 19,
    FileOverDirectory = 20,
    NotWritable = 21,
    LongerThanSource = 22,
    AnotherCopyRuns = 23,
    TakenAwayByOthers = 24,
    WorkerStopped = 25,
    NoDirectReads = 26,
    RecordedBlockDiffers = 27,
    SessionDamaged = 28,
    SourceChangedSince = 29,
    OtherOptions = 30,
    UnfinishedIsGone = 31,
    UnfinishedIsAnother = 32,
    UnfinishedOfAnotherUser = 33,
    UnfinishedTooShort = 34,
    ReservedName = 35,
    NameOver255 = 36,
    OwnerWithoutNumber = 37,
    LongerThanFilesAre = 38,
    ListedNameNotRelative = 39,
    ListedNameWithDotDot = 40,
    ListedNameIsSource = 41,
    NoSuchName = 42,
    IsDirectory = 43,
    LinkLoop = 44,
    AttributesTooLarge = 45,
    EmptyPath = 46,
    NameWithNul = 47,
    LeadsOutside = 48,
    DanglingLink = 49,
    AnotherDirectoryThere = 50,
    LinkAtConfinedServer = 51,
    ServerRemovesNothing = 640,
    ThreadStopped = 52,
    NoStream = 53,
    EndedWithoutLastWord = 54,
    ClosedByPeer = 55,
    StoreOfAnotherUser = 56,
    StoreOpenToOthers = 57,
    StoreLockNotOurs = 58,
    EndedInMessage = 59,
    ConnectionThreadStopped = 60,
    WayOfSshUnknown = 61,
    NoAddress = 62,
    UnknownToken = 63,
    NoAnswerYet = 64,
    OtherVersion = 65,
    ClosedAtOnce = 66,
    DidNotJoin = 67,
    HostWithAt = 68,
    EmptyProgram = 69,
    ProgramWithDash = 70,
    SshCouldNotConnect = 71,
    NoPipes = 72,
    SshEndedBadly = 73,
    OneSourceDirectory = 74,
    MadeByCopyItself = 75,
    NotADirectory = 76,
    DirectoryWentAway = 77,
    EmptyName = 78,
    KeptAtSource = 79,
    SyncFailedSoKept = 80,
    ChangedAfterCopy = 81,
    NoDirectory = 82,
    ChangedWhileRead = 83,
    NoFileInTheWay = 84,
    AnotherWritesManifest = 85,
    NameNotUtf8 = 86,
    LandedElsewhere = 87,
    OnlyCompleteCopy = 88,
    NoManifestLine = 89,
    WronglyEscaped = 90,
    ItsNameWithNul = 91,
    ItsNameNotRelative = 92,
    ItsNameWithDotDot = 93,
    NamesNothing = 94,
    PathLeadsThrough = 95,
    SlashMeansTarget = 96,
    NotEmpty = 97,
    OneSourceOneName = 98,
    LinkMayBeTheirs = 99,
    TargetOfSeveralNoDirectory = 100,
    TargetNoDirectory = 101,
    WouldWriteThroughLink = 102,
    LeadsToDirectory = 103,
    SlashButNoDirectory = 104,
    SameDirectory = 105,
    DidNotCome = 106,
    TooManyLinks = 107,
    FirstNameUnsettled = 108,
    AlreadyThere = 109,
    NoOtherMachine = 110,
    NoSource = 111,
    ConnectionClosed = 112,
    NoToken = 113,
    DirectNotOffered = 114,
    NoRendezvous = 115,
    ListOver8MiB = 116,
    ListOver32MiB = 117,
    ListOverMillion = 118,
    AnswerToAnother = 119,
    NothingNamed = 120,
    IsRoot = 121,
    IsCurrentDirectory = 122,
    HoldsCurrentDirectory = 123,
    IsDots = 124,
    OtherFileSystem = 125,
    IsMountPoint = 126,
    ServerOnlyReads = 127,
    ServerFollowsNoLink = 128,
    NotOverSsh = 129,
    NotAgreedOn = 130,
    TooManyStreams = 131,
    SomethingElseThere = 132,
    NoRegularFileAnyMore = 133,
    NothingCame = 134,
    TooManyOperands = 135,
    PathTooLongForHashes = 136,
    PeerLeft = 137,
    NotOnThisDisk = 138,
    NotItsCopy = 139,
    HoldsSource = 140,
    SourceIsEmpty = 141,
    NotAllIsThere = 142,
    SourceBelowDestination = 143,
    SourceIsNoDirectory = 144,
    NotMountedWhereItWas = 145,
    OutOfTheWay = 146,
    // Of plans.
    PlanDamaged = 221,
    PlanOfOtherVersion = 222,
    PlanThere = 223,
    NoPlan = 224,
    ResultDamaged = 225,
    StageOfPlanGone = 226,
    StrangersInStage = 227,
    ChangedSincePlan = 228,
    NotAllCopied = 229,
    NoShardLeft = 230,
    FinishAtWork = 231,
    AlreadyFinished = 232,
    DestinationIsThere = 233,
    NotListedWhole = 234,
    // Of what a sync keeps, and gives back.
    KeptElsewhere = 251,
    KeptInDestination = 252,
    ChangedSinceRun = 253,
    HoldsWhatCameLater = 254,
    NoReceipt = 255,
    OtherDestination = 256,
    HoldsKept = 257,
    NoTrash = 258,
    SnapshotThere = 259,
    NewerSnapshot = 260,
    SnapshotRuns = 261,
    SnapshotIncomplete = 262,
    NotPlannedAnyMore = 263,
    NotPlanned = 264,
    PlannedOtherwise = 265,
    NoPlanOfSync = 266,
    BasisElsewhere = 267,
    RulesLeftOut = 290,
    RulesToCome = 291,
    TooManyRules = 292,
    RulesInTheWay = 293,
    RulesInNoFile = 294,
    SnapshotEmpty = 295,
    ClosedMayBeEmpty = 296,
    // What a message is, against the protocol.
    PieceWhileAllWait = 301,
    PieceNotAskedAgain = 302,
    PieceBeforeWanted = 303,
    PieceDoesNotFit = 304,
    PieceOutOfOrder = 305,
    BlockWithoutValue = 306,
    ValueInsideBlock = 307,
    ValuesNotAsked = 308,
    RangeBeyondEnd = 309,
    RangeNotSent = 310,
    BlocksBeyondEnd = 311,
    TooManyValues = 312,
    AnswerAboutNoBlocks = 313,
    AnswerAboutOtherBlocks = 314,
    LastMessageAnswersNothing = 315,
    SummaryTooEarly = 316,
    QuestionToNobody = 317,
    PingWithoutToken = 318,
    BadJoin = 319,
    NoGreeting = 320,
    LinkWhereFollowed = 321,
    PieceOfOtherLength = 322,
    BadAttributeName = 323,
    BadName = 324,
    BadLinkTarget = 325,
    DirectoryTwice = 326,
    DirectoryInNone = 327,
    DirectoryThatIsNone = 328,
    NameNotAsked = 329,
    OtherOperand = 330,
    EntriesOfClosed = 331,
    DirectoryAmongFiles = 332,
    ContentsNotAnnounced = 333,
    ContentsDoNotFit = 334,
    HashNotContent = 335,
    MoreContentsThanEntries = 336,
    ContentsNotWaitedFor = 337,
    ContentsOfNothing = 338,
    LargeThatIsNone = 339,
    TooManyOffers = 340,
    BlocksBehindEnd = 341,
    BlocksNotAsked = 342,
    ProofOfNothing = 343,
    MoreProofsThanBlocks = 344,
    EndBeforeSettled = 345,
    EndOfClosed = 346,
    PackedWithoutLength = 347,
    TooManyNames = 348,
    NoRequest = 349,
    NamesWithoutRequest = 350,
    NoTransfer = 351,
    ListNeedsOneDirectory = 352,
    ContentsNotAsked = 353,
    LargeAfterEnd = 354,
    OperandTooMany = 355,
    OperandsOfTwoMachines = 356,
    OperandNotAsked = 357,
    OperandOfOtherKind = 358,
    DirectoryWithOwnId = 359,
    TooManyDirectories = 360,
    BatchTwice = 361,
    TooManyBatches = 362,
    FileTwice = 363,
    FileNotOffered = 364,
    PatternNotText = 365,
    CheckpointNotBlocks = 366,
    TooMuchDuringQuestion = 367,
    NumberUnknown = 368,
    FinerThanTold = 381,
    PatchOfNothing = 382,
    SumsNotAsked = 383,
    SumsOutOfOrder = 384,
    TooManySums = 385,
    // What a side waits for.
    WaitsForMessage = 401,
    WaitsForRoom = 402,
    WaitsForSettling = 403,
    WaitsForWord = 404,
    WaitsForValues = 405,
    WaitsForContent = 406,
    WaitsForPerson = 407,
    WaitsForSomething = 408,
    PeerSaysNothing = 409,
    PeerWorks = 410,
    PeerAsksPerson = 411,
    // How two differ.
    BySize = 431,
    ByMtime = 432,
    ByContent = 433,
    ByType = 434,
    ByMode = 435,
    ByOwner = 436,
    ByDevice = 437,
    ByTarget = 438,
    Missing = 439,
    OnlyThere = 440,
    ByOther = 441,
    ByAcl = 442,
    ByAttributes = 443,
    AwaitsGreeting = 444,
    AwaitsFirstRequest = 445,
    AwaitsWelcome = 446,
    AwaitsRequest = 447,
    WithoutRequest = 448,
    AwaitsInfo = 449,
    AwaitsPages = 450,
    AwaitsOk = 451,
    AwaitsUsed = 452,
    AwaitsToken = 453,
    AwaitsRendezvous = 454,
    Sending = 455,
    Receiving = 456,
    SendingBeside = 457,
    ReceivingBeside = 458,
    SenderHasEnded = 459,
    ReceiverHasEnded = 460,
    PeerHasEnded = 461,
    WithoutTransfer = 462,
    LastMessageUnanswered = 463,
    // Those that speak of something.
    Said = 501,
    Because = 502,
    KindIs = 503,
    KindBecame = 504,
    KindNotFile = 505,
    KindAtConfinedServer = 506,
    ThereForAnother = 507,
    EarlierSource = 508,
    EarlierOperand = 509,
    OwnersNotKept = 510,
    NotRemovedAgain = 511,
    PeerWaits = 512,
    WaitsAtBlock = 513,
    Stalled = 514,
    AnsweredBefore = 515,
    FromBeyondEnd = 516,
    DirectoryNotAsked = 517,
    NotReceivers = 518,
    FileNotOnOffer = 519,
    BatchNotWaiting = 520,
    EntryNotThere = 521,
    Silence = 522,
    BadMessage = 523,
    MessageOfLength = 524,
    NoMessage = 525,
    NoAnswerAt = 526,
    AnotherAnswersAt = 527,
    LoginWithoutAnswer = 528,
    LoginPassedOver = 529,
    NoPlaceHere = 530,
    BadGreeting = 531,
    EmptyWord = 532,
    LongWord = 533,
    WordWithDash = 534,
    WordHolds = 535,
    ProgramHolds = 536,
    NoProgram = 537,
    ProgramNotRun = 538,
    NoBcmrThere = 539,
    ServeEnded = 540,
    OtherKey = 541,
    OtherKeyAt = 542,
    OtherKeyIs = 543,
    OtherKeyAtIs = 544,
    Line = 545,
    DestinationInside = 546,
    MoreDidNotCome = 547,
    NotSendersMessage = 548,
    BadPiece = 549,
    BadContents = 550,
    FromStore = 551,
    SaidAndCame = 552,
    ConnectingAgain = 553,
    FewerConnections = 554,
    OverSsh = 555,
    PastSsh = 556,
    StoreUnusable = 557,
    PatternsTooLarge = 558,
    StartsOver = 559,
    OutOfPlace = 560,
    RestNotCompared = 561,
    TooMuchToDelete = 562,
    OldKept = 571,
    NoSuchShard = 581,
    ShardsMissing = 582,
    ShardAtWork = 583,
    PlanDeletesUnfiltered = 584,
    SourceIsAnother = 585,
    NotAllTakenAway = 586,
    ChangedWhileTaken = 587,
    FromBasis = 591,
    SnapshotMade = 601,
    OldKeptThere = 602,
    KeepingUnasked = 603,
    SidesNotTold = 610,
    KeptNoMore = 620,
    TooLongForPlan = 611,
    AwaitsUndone = 612,
    NotBelowRoot = 613,
    ReceiptTooLarge = 614,
    TreeUnasked = 760,
    PlanWithoutWay = 761,
    PlanMergesHere = 762,
    TreeLacksSome = 763,
    OnlyCopiesBetweenMachines = 780,
    PlanSyncsThereUnfiltered = 781,
    PlanInDestination = 870,
    PlanLostSome = 871,
    KeptInSource = 872,
    PlanInSource = 880,
    LinkWouldBeFollowed = 881,
    LinkOfAnotherUser = 921,
    IdentityNotTold = 782,
    HeldUnreadable = 790,
    AclNotHeld = 791,
    OwnersNotHeld = 792,
    HeldAclUnreadable = 793,
    NoneMatches = 680,
    FromRun = 830,
    AddedToAnother = 890,
    KeepsNothing = 891,
    LinkOfTheSystem = 897,
    ReceiptCutOff = 900,
    AttributesDoNotFit = 901,
    HoldsSomethingElse = 930,
    TimesNotHeld = 905,
}}

/// A reason with what it speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Why.
    pub reason: Reason,
    /// What its words have room for, in their order.
    pub about: Vec<About>,
}

/// One thing that a reason speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// A name, a number, or the words of another program.
    Text(String),
    /// Another reason.
    Note(Note),
}

impl Reason {
    /// This, speaking of `what`.
    #[must_use]
    pub fn about(self, what: impl Into<About>) -> Note {
        Note::from(self).about(what)
    }
}

impl Note {
    /// The same, speaking of one thing more.
    #[must_use]
    pub fn about(mut self, what: impl Into<About>) -> Note {
        self.about.push(what.into());
        self
    }
}

impl From<Reason> for Note {
    fn from(reason: Reason) -> Note {
        Note { reason, about: Vec::new() }
    }
}

/// The words of another program.
impl From<String> for Note {
    fn from(words: String) -> Note {
        Reason::Said.about(words)
    }
}

impl From<String> for About {
    fn from(text: String) -> About {
        About::Text(text)
    }
}

impl From<&str> for About {
    fn from(text: &str) -> About {
        About::Text(text.to_owned())
    }
}

impl From<&std::path::Path> for About {
    fn from(path: &std::path::Path) -> About {
        About::Text(path.display().to_string())
    }
}

impl From<u64> for About {
    fn from(number: u64) -> About {
        About::Text(number.to_string())
    }
}

impl From<usize> for About {
    fn from(number: usize) -> About {
        About::Text(number.to_string())
    }
}

impl From<Note> for About {
    fn from(note: Note) -> About {
        About::Note(note)
    }
}

impl From<Reason> for About {
    fn from(reason: Reason) -> About {
        About::Note(reason.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_number_means_one_thing_and_none_is_0() {
        let ops: HashSet<u16> = Op::ALL.iter().map(|op| op.number()).collect();
        let reasons: HashSet<u16> = Reason::ALL.iter().map(|reason| reason.number()).collect();
        assert_eq!((ops.len(), reasons.len()), (Op::ALL.len(), Reason::ALL.len()));
        assert!(!ops.contains(&0) && !reasons.contains(&0));
        for op in Op::ALL {
            assert_eq!(Op::of_number(op.number()), *op);
        }
        for reason in Reason::ALL {
            assert_eq!(Reason::of_number(reason.number()), *reason);
        }
    }

    #[test]
    fn what_a_newer_version_says_keeps_its_number() {
        assert_eq!(Op::of_number(u16::MAX), Op::Unknown(u16::MAX));
        assert_eq!(Op::of_number(u16::MAX).number(), u16::MAX);
        assert_eq!(Reason::of_number(60_000).number(), 60_000);
    }
}
