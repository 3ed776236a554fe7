//! The page of the simulation and its pictures. Knows only what came of it.

use super::costs::{self, Cost};
use super::model::{CLIENTS, SCENES, SHARDS_A_CLIENT, Scene, Taken, taken};
use std::fmt::Write;

/// The page and its pictures, by their names.
pub fn files(seed: u64) -> Vec<(String, String)> {
    let all: Vec<(Scene, Vec<Taken>)> = SCENES
        .iter()
        .map(|scene| (*scene, CLIENTS.iter().map(|clients| taken(scene, *clients, seed)).collect()))
        .collect();
    vec![("scale-many.md".to_owned(), page(&all)), ("scale-many.svg".to_owned(), picture(&all))]
}

/// Seconds, for people.
fn time(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() => "never".to_owned(),
        s if s < 100.0 => format!("{s:.1} s"),
        s if s < 6000.0 => format!("{:.1} min", s / 60.0),
        s if s < 360_000.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

/// Three digits that count.
fn figure(value: f64) -> String {
    if (0.01..10_000.0).contains(&value.abs()) { format!("{value:.3}") } else { format!("{value:.2e}") }
}

/// How much of what so many clients could do at best comes of them, against one.
fn efficiency(all: &[Taken], at: &Taken, of: fn(&Taken) -> f64) -> f64 {
    let one = all.first().map_or(f64::NAN, of);
    one / f64::from(at.clients) / of(at)
}

fn shards_of(taken: &Taken) -> f64 {
    taken.shards.seconds
}

/// What a copy waits for most.
fn limit(taken: &Taken) -> &'static str {
    let shards = taken.shards.seconds;
    if taken.plan.max(taken.finish) > shards {
        return if taken.plan > taken.finish { "the plan" } else { "the end" };
    }
    if taken.shards.names_busy > 0.9 {
        "names"
    } else if taken.shards.content_busy > 0.9 {
        "content"
    } else {
        "clients"
    }
}

const HEAD: &str = "\
# Many machines on paper

Written by `cargo xtask scale --write docs`, never by hand: a simulation, event by event, of copies in shards
(docs/many-machines.md) on one parallel file system that has the source, the destination and the plan. No such file system
was at hand. What this program takes is near what one machine took; what the file system takes was published by others, of
machines of different years and makes. So the curves tell where something bends and why, and not how long your copy takes.
";

const WHY: &str = "
## Where it stops scaling, and why

- **The plan and the end are one process each.** They do not become faster with more clients, so the whole does not either
  once the shards take less than those two. The plan waits for looks at files, as many at a time as it has threads. The end
  opens, lists and seals one directory after the other, and waits for each: that is why it takes longest where there are
  many directories, and nothing where all files are in one. Both could be done in parts: the plan by walking subtrees on
  several clients and merging their sorted runs, the end by sealing subtrees by shards of their own. Neither is done.
- **One hot directory** is one metadata server's: all names in it are made there, one after the other. More clients only
  wait longer. Nothing in a copier helps; the source's layout does.
- **Names and content** have their limits in the file system's servers. From there on a further client is of no use, and
  its shards take longer.
- **One file of 100 TiB** is copied in parts of 1 GiB, so it keeps as many clients busy as it has parts.
- **Slow clients** take fewer shards, as each takes the next one when it is done. What they cost is the last shard that one
  is at: with 16 shards for each client, at most some sixteenth of the time by its factor.
- **Dying clients** cost what they had not recorded, and the wait for their claims to run out, which other shards fill.
- **Finding the next shard** is two listings of small directories, and a claim. It was one look at every shard before the
  free one, and one at every claim, for each of them: with 4,096 clients some 10^8 looks.
";

fn page(all: &[(Scene, Vec<Taken>)]) -> String {
    let mut out = HEAD.to_owned();
    let _ = write!(
        out,
        "\nEfficiency is against one client: 1.00 would be twice as fast with twice as many. {SHARDS_A_CLIENT} shards for each client.\n\n![efficiency over clients](scale-many.svg)\n"
    );
    for (scene, taken) in all {
        let _ = write!(
            out,
            "\n## {}\n\n| clients | plan | shards | end | whole | efficiency of the shards | of the whole | waits for |\n|---|---|---|---|---|---|---|---|\n",
            scene.what,
        );
        for at in taken {
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} | {:.2} | {:.2} | {} |",
                at.clients,
                time(at.plan),
                time(at.shards.seconds),
                time(at.finish),
                time(at.whole()),
                efficiency(taken, at, shards_of),
                efficiency(taken, at, Taken::whole),
                limit(at),
            );
        }
        if scene.dies_h.is_some() {
            let dead: Vec<String> = taken.iter().map(|at| at.shards.dead.to_string()).collect();
            let _ = writeln!(out, "\nClients that died: {}.", dead.join(", "));
        }
    }
    out.push_str(WHY);
    out.push_str("\n## What it is made of\n\n| what | value | source |\n|---|---|---|\n");
    for Cost { what, value, unit, source } in costs::ALL {
        let _ = writeln!(out, "| {what} | {} {unit} | {source} |", figure(*value));
    }
    let _ = write!(
        out,
        "\nA small file takes one creation and {} looks in its shard, a directory {} looks in the end, a shard {}.\n",
        costs::LOOKS_A_FILE,
        costs::LOOKS_A_DIR_IN_THE_END,
        costs::LOOKS_A_SHARD,
    );
    out
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 50.0;
const TOP: f64 = 36.0;
const ACROSS: f64 = 520.0;
const DOWN: f64 = 220.0;
const COLOURS: [&str; 6] = ["#2a7de1", "#d33", "#e08a00", "#2a9d4a", "#8a4fd3", "#777"];

/// Efficiency over clients: whole lines are the shards alone, broken ones all of it.
fn picture(all: &[(Scene, Vec<Taken>)]) -> String {
    let mut body = String::new();
    let text = |body: &mut String, x: f64, y: f64, colour: &str, words: &str| {
        let _ = writeln!(body, "<text x=\"{x:.0}\" y=\"{y:.0}\" fill=\"{colour}\">{words}</text>");
    };
    let most = CLIENTS.last().map_or(1.0, |n| f64::from(*n)).ln();
    let x = |clients: u32| LEFT + ACROSS * f64::from(clients).ln() / most;
    let y = |part: f64| TOP + DOWN * (1.0 - part.clamp(0.0, 1.0));
    for clients in CLIENTS {
        let at = x(clients);
        let _ =
            writeln!(body, "<path d=\"M{at:.1} {TOP}V{:.1}\" stroke=\"#8884\" fill=\"none\"/>", TOP + DOWN);
        text(&mut body, at - 8.0, TOP + DOWN + 16.0, "#777", &clients.to_string());
    }
    for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let _ = writeln!(
            body,
            "<path d=\"M{LEFT} {:.1}H{:.1}\" stroke=\"#8884\" fill=\"none\"/>",
            y(part),
            LEFT + ACROSS
        );
        text(&mut body, 16.0, y(part) + 4.0, "#777", &format!("{part:.2}"));
    }
    for (number, (scene, taken)) in all.iter().enumerate() {
        let colour = COLOURS.get(number).copied().unwrap_or("#777");
        for (of, dashes) in
            [(shards_of as fn(&Taken) -> f64, ""), (Taken::whole, " stroke-dasharray=\"4 3\"")]
        {
            let points: Vec<String> = taken
                .iter()
                .map(|at| format!("{:.1},{:.1}", x(at.clients), y(efficiency(taken, at, of))))
                .collect();
            let _ = writeln!(
                body,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"{dashes}/>",
                points.join(" "),
            );
        }
        text(&mut body, LEFT + ACROSS + 14.0, TOP + 12.0 + 18.0 * number as f64, colour, scene.name);
    }
    text(
        &mut body,
        LEFT,
        20.0,
        "#777",
        "efficiency over clients; whole lines: shards alone, broken ones: plan and end too",
    );
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n{body}</svg>\n"
    )
}
