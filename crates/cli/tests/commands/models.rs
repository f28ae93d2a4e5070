//! The commands that show costs without a store: simulate and paper.

use crate::Place;

#[test]
fn simulate_prints_tables_json_and_a_plot() {
    let place = Place::new();
    let arguments = ["simulate", "--policy", "all", "--size", "4G", "--gets", "1000"];
    let text = place.ok(&[&arguments[..], &["--svg", "s.svg"]].concat());
    for shown in ["leveling", "write amp", "probes/get", "Stall order", "1000 gets:"] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
    let svg = std::fs::read_to_string(place.path("s.svg")).expect("a file");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    let again = place.run(&[&arguments[..], &["--svg", "s.svg"]].concat());
    assert_eq!(again.code, 5, "nothing is overwritten");
    let report = place.json(&arguments);
    assert_eq!(report, place.json(&arguments), "the same each time");
    let policies = report["policies"].as_array().expect("policies");
    assert_eq!(report["stall_order"].as_array().map(Vec::len), Some(policies.len()));
    for outcome in policies {
        let load = &outcome["load"];
        assert_eq!(load["user_bytes"], 4_u64 << 30);
        assert!(load["write_amplification"].as_f64() > Some(1.0), "{load}");
        // Fresh keys: the store contains what was written, up to a rounding of a thousandth.
        let space = load["space_amplification"].as_f64().expect("a number");
        assert!((0.999..=1.0).contains(&space), "{space}");
        assert_eq!(outcome["gets"]["get_count"], 1000);
        assert!(load["curve"].as_array().is_some_and(|curve| curve.len() == 7), "{load}");
    }
}

#[test]
fn simulate_says_when_tables_are_larger_than_asked() {
    let place = Place::new();
    let arguments = ["simulate", "--policy", "leveling", "--size", "1T"];
    assert!(place.ok(&arguments).contains("simulated with tables of"));
    assert_eq!(place.json(&arguments)["coarsening"]["table_factor"], 4);
    let half = place.json(&[&arguments[..], &["--overwrite", "0.5"]].concat());
    let whole = place.json(&arguments);
    let held = |report: &serde_json::Value| {
        let levels = report["policies"][0]["load"]["levels"].as_array().expect("levels").clone();
        levels.iter().filter_map(|level| level["bytes"].as_u64()).sum::<u64>()
    };
    assert!(held(&half) < held(&whole) * 3 / 4, "{} of {}", held(&half), held(&whole));
}

#[test]
fn simulate_lets_entries_expire() {
    let place = Place::new();
    let arguments = ["simulate", "--policy", "tiering", "--size", "10G", "--ttl", "1G"];
    assert!(place.ok(&arguments).contains("left unread: tiering 9G\n"));
    let load = &place.json(&arguments)["policies"][0]["load"];
    assert_eq!(load["dropped_bytes"], 9_u64 << 30);
}

#[test]
fn simulate_deletes_ranges() {
    let place = Place::new();
    let base = ["simulate", "--policy", "tiering", "--size", "10G"];
    let held = |more: &[&str]| -> u64 {
        let report = place.json(&[&base[..], more].concat());
        let levels = report["policies"][0]["load"]["levels"].as_array().expect("levels").clone();
        levels.iter().filter_map(|level| level["bytes"].as_u64()).sum()
    };
    let (all, some) = (held(&[]), held(&["--delete-every", "512M"]));
    assert!(some < all, "{some} of {all}");
    assert_eq!(held(&["--delete-every", "64M", "--delete-share", "1"]), 0);
}

#[test]
fn simulate_loads_a_share() {
    let place = Place::new();
    let base = ["simulate", "--policy", "leveling", "--size", "16G", "--order", "sequential"];
    let report = place.json(&[&base[..], &["--load-share", "0.75", "--load-size", "2G"]].concat());
    assert_eq!(report["loads"]["share"], 0.75);
    let load = &report["policies"][0]["load"];
    assert_eq!(
        (&load["flushed_bytes"], &load["loaded_bytes"]),
        (&(4_u64 << 30).into(), &(12_u64 << 30).into())
    );
    assert_eq!(
        (&load["compacted_bytes"], &load["user_bytes"]),
        (&0.into(), &(16_u64 << 30).into())
    );
}

#[test]
fn simulate_refuses_nonsense() {
    let place = Place::new();
    let base = ["simulate", "--policy", "leveling", "--size", "1G"];
    for (more, word) in [
        (&["--T", "1"][..], "--T, for leveling"),
        (&["--c", "0"], "--c 0"),
        (&["--c", "1.5"], "--c 1.5"),
        (&["--c", "x"], "--c"),
        (&["--l0-share", "101"], "--l0-share, for leveling"),
        (&["--K", "0"], "--K"),
        (&["--entry-size", "0"], "--entry-size"),
        (&["--entry-size", "1G"], "--memtable"),
        (&["--memtable", "16"], "--memtable"),
        (&["--memtable", "1048577T"], "--memtable"),
        (&["--overwrite", "1"], "--overwrite 1"),
        (&["--keys", "10", "--overwrite", "0.1"], "--overwrite"),
        (&["--keys", "0"], "--keys"),
        (&["--ttl", "0"], "--ttl"),
        (&["--delete-every", "0"], "--delete-every"),
        (&["--delete-share", "0.5"], "--delete-every"),
        (&["--delete-every", "1G", "--delete-share", "0"], "--delete-share 0"),
        (&["--ttl", "1G", "--entry-size", "1K", "--placement", "vlog"], "--ttl"),
        (&["--load-share", "1"], "--load-share 1"),
        (&["--load-share", "0.5", "--load-size", "1M"], "--load-size"),
        (&["--load-size", "1G"], "--load-share"),
        (&["--load-share", "0.5", "--entry-size", "1K", "--placement", "vlog"], "--load-share"),
        (&["--order", "backwards"], "sequential"),
        (&["--table-size", "1"], "--table-size"),
        (&["--placement", "vlog", "--slot", "64"], "--slot"),
        (&["--placement", "hash-grouped", "--groups", "0"], "--groups"),
        (&["--placement", "vlog", "--reserve", "101"], "--reserve 101"),
        (&["--placement", "vlog", "--entry-size", "1"], "--entry-size"),
        (&["--svg", "no/such/directory.svg"], "no/such"),
    ] {
        let ran = place.run(&[&base[..], more].concat());
        let code = if more[0] == "--svg" { 5 } else { 3 };
        assert_eq!(ran.code, code, "{more:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(word), "{more:?}: {}", ran.stderr);
    }
    for (arguments, word) in [
        (&["simulate", "--size", "1G"][..], "--policy"),
        (&["simulate", "--policy", "leveling"], "--size"),
        (&["simulate", "--policy", "leveling", "--size", "0"], "--size"),
        (&["simulate", "--policy", "all", "--size", "16777215T", "--memtable", "9T"], "1048576T"),
        (&["simulate", "--policy", "leveling", "--size", "lots"], "64M"),
        (&["simulate", "--policy", "levelling", "--size", "1G"], "did you mean leveling?"),
    ] {
        let ran = place.run(arguments);
        assert_eq!(ran.code, 3, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(word), "{arguments:?}: {}", ran.stderr);
    }
}

/// Separated values: the tree contains pointers, and the writes of collections are reported
/// separately.
#[test]
fn simulate_reckons_values_apart() {
    let place = Place::new();
    let base = [
        "simulate",
        "--policy",
        "leveling",
        "--size",
        "256M",
        "--entry-size",
        "1K",
        "--keys",
        "65536",
        "--memtable",
        "1M",
        "--slot",
        "64K",
    ];
    let of = |placement: &str| {
        place.json(&[&base[..], &["--placement", placement, "--groups", "8"]].concat())
    };
    let [inline, log, groups] = ["inline", "vlog", "hash-grouped"].map(of);
    assert!(inline["values"].is_null());
    let tree = |report: &serde_json::Value| {
        let load = &report["policies"][0]["load"];
        load["flushed_bytes"].as_u64().zip(load["compacted_bytes"].as_u64()).expect("numbers")
    };
    for report in [&log, &groups] {
        let values = &report["values"];
        assert!(values["collected_bytes"].as_u64() > Some(64 << 20), "{values}");
        assert!(tree(report).0 * 8 < tree(&inline).0, "{values}");
    }
    let pointers = |report: &serde_json::Value| report["values"]["pointers"].as_u64();
    assert!(pointers(&log) > pointers(&groups), "a log moves what trees point to");
    let text = place.ok(&[&base[..], &["--placement", "vlog"]].concat());
    assert!(text.contains("separated values") && text.contains("leveling, vlog"), "{text}");
}

const ON_FLASH: [&str; 15] = [
    "simulate",
    "--policy",
    "fragmented-leveling",
    "--size",
    "96M",
    "--entry-size",
    "1K",
    "--keys",
    "40000",
    "--memtable",
    "1M",
    "--table-size",
    "1M",
    "--l0-trigger",
    "4",
];

/// Checks what the flash device programs, by layer. A KVSSD modifies no pages, and moves few.
#[test]
fn simulate_reckons_flash() {
    let place = Place::new();
    let more = ["--device", "80M", "--flash", "lsm,lsm-shared,nlsm,rlsm-,rlsm"];
    let arguments = [&ON_FLASH[..], &more[..]].concat();
    let report = place.json(&arguments);
    assert_eq!(report, place.json(&arguments), "the same each time");
    let flash = report["flash"].as_array().expect("a list").clone();
    assert_eq!(flash.len(), 5);
    let number = |at: usize, name: &str| flash[at][name].as_u64().expect("a number");
    for at in 0..5 {
        assert_eq!(number(at, "user_bytes"), 96 << 20);
        assert!(number(at, "flash_bytes") >= number(at, "page_bytes"), "{flash:?}");
    }
    let rewritten = |at: usize| flash[at]["read_modify_write_factor"].as_f64().expect("a number");
    assert!(rewritten(0) > 1.4 && number(2, "page_bytes") > 0);
    assert_eq!(rewritten(2), 1.0);
    assert!(number(4, "flash_bytes") < number(2, "flash_bytes"), "remapping saves");
    assert!(number(2, "flash_bytes") < number(0, "flash_bytes"), "{flash:?}");
    let text = place.ok(&arguments);
    assert!(text.contains("fragmented-leveling, rlsm, TH 2"), "{text}");
    let without = place.json(&ON_FLASH);
    assert_eq!(without["flash"].as_array().map(Vec::len), Some(0));
}

#[test]
fn simulate_refuses_flash_that_makes_no_sense() {
    let place = Place::new();
    for (more, word) in [
        (&["--flash", "rlsm", "--device", "30M"][..], "the device is full"),
        (&["--flash", "lsm", "--device", "30M"], "full"),
        (&["--flash", "nlsm", "--device", "1M"], "a device of 1 blocks"),
        (&["--flash", "nlsm", "--page", "5000"], "multiples of 4096"),
        (&["--flash", "nlsm", "--set-aside", "91"], "91% set aside"),
        (&["--flash", "rlsm", "--th", "0"], "--th"),
        (&["--flash", "tlsm"], "rlsm-"),
        (&["--flash", "nlsm", "--placement", "vlog"], "--placement with --flash"),
        (&["--flash", "nlsm", "--partitioner", "global-range"], "--partitioner with --flash"),
        (&["--flash", "nlsm", "--policy=universal"], "universal needs levels"),
    ] {
        let ran = place.run(&[&ON_FLASH[..], more].concat());
        assert!(ran.code != 0 && ran.stderr.contains(word), "{more:?}: {}", ran.stderr);
    }
}

/// Without `--base` its value comes from `--memtable`, so the error names `--memtable` as what to
/// change.
#[test]
fn simulate_names_the_flag_that_was_given() {
    let place = Place::new();
    let tiny = ["simulate", "--policy", "leveling", "--size", "1K", "--entry-size", "1"];
    for (more, told) in [
        (
            &["--memtable", "16"][..],
            "where: --memtable, for leveling\n  hint: change --memtable, or",
        ),
        (&["--base", "16"], "where: --base, for leveling\n  hint: change --base, or leave it out"),
    ] {
        let ran = place.run(&[&tiny[..], more].concat());
        assert!(ran.code == 3 && ran.stderr.contains(told), "{more:?}: {}", ran.stderr);
    }
}

#[test]
fn papers_are_listed_and_unknown_ones_refused() {
    let place = Place::new();
    assert!(place.ok(&["paper"]).contains("autumn"));
    assert_eq!(place.json(&["paper"])["papers"][0]["name"], "autumn");
    for (arguments, word) in [
        (&["paper", "autum"][..], "did you mean autumn?"),
        (&["paper", "autumn", "--scale", "0"], "scale 0"),
        (&["paper", "autumn", "--scale", "nan"], "scale NaN"),
        (&["paper", "autumn", "--scale", "t2"], "neither a number nor t0 nor t1"),
        (&["paper", "autumn", "--scale", "t1"], "these have it: kvssd, kvssd-beyond"),
        (&["paper", "kvssd", "--scale", "t1", "--only", "speed"], "no such part"),
        (&["paper", "partitioning", "--only", "speed"], "choose among: figures, load"),
        (&["paper", "zzzzzz"], "ptierdb, all"),
        (&["paper", "--check"], "<NAME>"),
        // Refused before anything is measured, for all papers as for one.
        (&["paper", "all", "--only", "layers"], "paper autumn has no such part"),
        (&["paper", "all", "--scale", "t1"], "these have it: kvssd, kvssd-beyond"),
        (&["paper", "kvssd-beyond", "--svg", "figures"], "draws no figures"),
    ] {
        let ran = place.run(arguments);
        assert_eq!(ran.code, 3, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(word), "{arguments:?}: {}", ran.stderr);
    }
    assert!(!place.path("figures").exists());
}

/// Most claims of the KVSSD are meant for a device that fills up. Some hold on any device: what a
/// layer writes follows from its construction. Every run asserts that its layers account for all
/// programs.
#[test]
fn the_layers_of_a_kvssd_are_measured() {
    let place = Place::new();
    let report = place.json(&["paper", "kvssd", "--scale", "0.03", "--only", "layers"]);
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 7, "{report}");
    let here = |at: usize| rows[at]["here"].as_str().expect("text");
    let (engine, nlsm) = here(0).split_once(" = ").expect("two compactions");
    let apart = engine.parse::<f64>().expect("a number") / nlsm.parse::<f64>().expect("a number");
    assert!((0.9..1.1).contains(&apart), "both compact as much: {}", here(0));
    let (engine, nlsm) = here(1).split_once(" / ").expect("read-modify-write of both");
    assert!(engine > "1.1" && nlsm == "1.000", "{}", here(1));
    for row in &rows[..2] {
        assert_eq!(row["verdict"], "not comparable", "the scale is too small: {row}");
        assert!(row["sides"].as_str().is_some_and(|sides| sides.contains("LSM: ")), "{row}");
    }
    let report =
        place.json(&["paper", "kvssd-beyond", "--scale", "0.06", "--only", "global-range"]);
    let rows = report["beside"].as_array().expect("rows");
    assert_eq!(rows.len(), 4, "{report}");
    for row in rows.iter().step_by(2) {
        let here = row["here"].as_str().expect("text").split(" / ");
        let writes: Vec<f64> = here.map(|one| one.parse().expect("a number")).collect();
        assert!(writes[1] < writes[0].min(writes[2]), "Global-Range writes least: {row}");
    }
}

/// Each paper gets a report with tiny sizes, in which every part runs. If the figures exist
/// already, the command is refused before anything is measured.
#[test]
fn all_papers_are_measured() {
    let place = Place::new();
    let all = ["paper", "all", "--scale", "0.001"];
    let names: Vec<String> = place.json(&["paper"])["papers"]
        .as_array()
        .expect("papers")
        .iter()
        .map(|paper| paper["name"].as_str().expect("text").to_string())
        .collect();
    let reports = place.json(&[&all[..], &["--svg", "figures"]].concat());
    let reports = reports["reports"].as_array().expect("reports");
    assert_eq!(reports.iter().map(|one| one["paper"].clone()).collect::<Vec<_>>(), names);
    let count = |one: &serde_json::Value, what| one[what].as_array().expect("rows").len();
    for one in reports {
        assert!(count(one, "rows") + count(one, "beside") > 0, "{one}");
        let is_page_of_claims = one["paper"] != "kvssd-beyond";
        assert_eq!((5..=8).contains(&count(one, "headlines")), is_page_of_claims, "{one}");
    }
    let drawn = std::fs::read_dir(place.path("figures")).expect("figures").count();
    assert!(drawn >= 30, "{drawn} figures");
    let refused = place.run(&[&all[..], &["--svg", "figures"]].concat());
    assert!(refused.code == 3 && refused.stderr.contains("--force"), "{}", refused.stderr);
    assert!(!refused.stderr.contains("whole-database"), "{}", refused.stderr);
    let one = ["paper", "partitioning", "--only", "slices", "--scale", "0.001"];
    let refused = place.run(&[&one[..], &["--svg", "figures"]].concat());
    assert!(refused.code == 3 && refused.stderr.contains("--force"), "{}", refused.stderr);
    assert!(!refused.stderr.contains("partitioning: slices"), "{}", refused.stderr);
    place.ok(&[&one[..], &["--svg", "figures", "--force"]].concat());
    let none = ["paper", "kvssd", "--only", "emulator", "--scale", "0.001", "--svg", "others"];
    let told = place.run(&none);
    assert!(told.code == 0 && told.stderr.contains("draw no figure"), "{}", told.stderr);
}

/// At a hundredth of its size a part's numbers mean little, and nothing is judged. But all numbers
/// are present, and a second run gives the same numbers.
#[test]
fn a_paper_is_measured() {
    let place = Place::new();
    let small = ["paper", "autumn", "--only", "sensitivity", "--scale", "0.01"];
    let report = place.json(&[&small[..], &["--svg", "figures"]].concat());
    let fields: Vec<&String> = report.as_object().expect("an object").keys().collect();
    assert_eq!(fields, ["beside", "headlines", "paper", "rows", "scale"]);
    assert_eq!((&report["paper"], &report["scale"]), (&"autumn".into(), &0.01.into()));
    let all = |report: &serde_json::Value| -> Vec<serde_json::Value> {
        let sections =
            ["rows", "beside"].map(|section| report[section].as_array().expect("rows").clone());
        sections.concat()
    };
    let rows = all(&report);
    assert!(rows.len() >= 8, "{report}");
    for row in report["rows"].as_array().expect("rows") {
        let row = row.as_object().expect("an object");
        let fields: Vec<&String> = row.keys().collect();
        assert_eq!(fields, ["claim", "here", "judged_by", "paper", "sides", "verdict"]);
        assert_eq!(row["verdict"], "not comparable");
    }
    let beside = report["beside"].as_array().expect("rows");
    assert!(!beside.is_empty() && beside.iter().all(|row| row["verdict"].is_null()), "{report}");
    let figure = std::fs::read_to_string(place.path("figures/autumn-figure-3a.svg"));
    assert!(figure.expect("a file").contains("T = 5"));
    let checked = place.run(&[&small[..], &["--check", "--json"]].concat());
    let again: serde_json::Value = serde_json::from_str(&checked.stdout).expect("JSON");
    let again = all(&again);
    assert_eq!(checked.code, 0, "{}", checked.stderr);
    assert_eq!(rows.len(), again.len());
    for (row, again) in rows.iter().zip(&again) {
        let tells = |field: &str, word: &str| row[field].as_str().is_some_and(|t| t.contains(word));
        let is_timed = tells("claim", "time") || tells("judged_by", "clock of a machine");
        assert!(is_timed || row == again, "the same each time: {row} {again}");
    }
    assert!(checked.stderr.contains("autumn: "), "progress is told");
    let left = std::fs::read_dir(place.path(".")).expect("readable");
    let names: Vec<_> = left.map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(names, ["figures"], "no scratch directory is left");
}

/// The tables of a page are written by the command, and the text around them stays. A page without
/// places for the tables is refused before anything is measured.
#[test]
fn the_tables_of_a_page_are_filled() {
    let place = Place::new();
    let part = ["paper", "partitioning", "--only", "ascending", "--scale", "0.1"];
    let fill = [&part[..], &["--page", "page.md"]].concat();
    std::fs::write(place.path("page.md"), "# Text\n").expect("writes");
    let refused = place.run(&fill);
    assert!(refused.code == 3 && refused.stderr.contains("<!-- paper: "), "{}", refused.stderr);
    assert!(!refused.stderr.contains("ascending keys"), "{}", refused.stderr);
    let places = ["headlines", "claims", "beside"]
        .map(|section| format!("<!-- paper: {section} -->\n<!-- end -->\n"));
    std::fs::write(place.path("page.md"), format!("# Text\n{}", places.concat())).expect("writes");
    place.ok(&fill);
    let page = std::fs::read_to_string(place.path("page.md")).expect("a page");
    assert!(page.starts_with("# Text\n"), "{page}");
    assert!(page.contains("| ascending keys: bytes rewritten | none: 100% moves |"), "{page}");
    let all = place.run(&["paper", "all", "--page", "page.md"]);
    assert!(all.code == 3 && all.stderr.contains("name the paper"), "{}", all.stderr);
}
