//! `paper`: the claims of a paper next to our measurements. The papers are in
//! `runstone-papers`; this file has the flags, the table and the files of the figures.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use comfy_table::{ContentArrangement, Table, presets};
use runstone_papers::{Context, PAPERS, Paper, PaperReport, PaperRow, Scale, Verdict};
use serde_json::json;

use crate::failure::{Exit, Failure, Result};
use crate::layout::terminal_columns;
use crate::output::{Output, columns, note};

/// Measure the claims of a paper, and judge them; without a name, list the papers
#[derive(clap::Args)]
pub struct Args {
    /// Name of the paper, or `all`: that takes half an hour and measures up to two at once, so
    /// figures that depend on the clock need a run of one paper.
    name: Option<String>,
    /// End with exit code 1 if an effect of the paper is weaker or absent.
    #[arg(long, requires = "name")]
    check: bool,
    /// Factor of the workloads' sizes; docs/papers uses 1. By name: t0 is 1; t1, for kvssd and
    /// kvssd-beyond, is the paper's 10 and 5 million operations with an eighth of all sizes: a
    /// device of 2 GB in memory, about an hour for all parts.
    #[arg(long, value_name = "S", default_value = "t0")]
    scale: Scale,
    /// Measure one part of a paper; an unknown part is refused with a list of the parts.
    #[arg(long, value_name = "PART", requires = "name")]
    only: Option<String>,
    /// Write the figures into a directory.
    #[arg(long, value_name = "DIR", requires = "name")]
    svg: Option<PathBuf>,
    /// Replace figures that exist.
    #[arg(long, requires = "svg")]
    force: bool,
    /// Write the tables into this page in Markdown, between its comments `<!-- paper: .. -->`.
    #[arg(long, value_name = "FILE", requires = "name")]
    page: Option<PathBuf>,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let Some(name) = &self.name else {
            return list(output);
        };
        let papers: Vec<&Paper> = match name.as_str() {
            "all" => PAPERS.iter().collect(),
            name => vec![runstone_papers::find(name)?],
        };
        papers.iter().try_for_each(|paper| self.check(paper, papers.len() == 1))?;
        let reports = self.measure_all(&papers, output)?;
        if let (Some(page), [report]) = (&self.page, &reports[..]) {
            write_page(page, &filled_page(page, report)?)?;
        }
        match (output.is_json, &reports[..]) {
            (true, [report]) => output.json(&json!(report))?,
            (true, reports) => output.json(&json!({ "reports": reports }))?,
            (false, [_]) => {}
            (false, reports) => output.bytes(summary(reports).as_bytes())?,
        }
        let is_short = self.check && reports.iter().any(PaperReport::falls_short);
        Ok(if is_short { Exit::Different } else { Exit::Ok })
    }

    /// Refuses impossible requests, and files that must not be replaced, before it measures for
    /// minutes.
    fn check(&self, paper: &Paper, is_alone: bool) -> Result<()> {
        paper.check(self.scale, self.only.clone())?;
        if let Some(page) = &self.page {
            if !is_alone {
                return Err(Failure::usage("a page is of one paper", "name the paper"));
            }
            filled_page(page, &PaperReport::new(paper.name, 1.0))?;
        }
        let Some(directory) = &self.svg else { return Ok(()) };
        if is_alone && !paper.has_figures {
            let what = format!("paper {} draws no figures", paper.name);
            return Err(Failure::usage(what, "leave --svg out"));
        }
        if self.force { Ok(()) } else { check_no_figures(directory, paper) }
    }

    /// Measures papers and shows each report when it is ready. Two threads measure one paper at a
    /// time: one measures the timed papers, the other those that only count.
    fn measure_all(&self, papers: &[&Paper], output: &Output) -> Result<Vec<PaperReport>> {
        let all = papers.iter().enumerate();
        let (counting, timed): (Vec<_>, Vec<_>) = all.partition(|(_, paper)| paper.only_counts);
        let mut reports = BTreeMap::new();
        std::thread::scope(|scope| {
            let (sender, measured) = mpsc::channel();
            for row in [timed, counting] {
                let sender = sender.clone();
                scope.spawn(move || {
                    for (at, paper) in row {
                        let report = self.measure(paper);
                        let has_failed = report.is_err();
                        // The receiver is gone after another paper has failed.
                        if sender.send((at, report)).is_err() || has_failed {
                            break;
                        }
                    }
                });
            }
            drop(sender);
            for (at, report) in measured {
                let report = report?;
                if let Some(directory) = &self.svg {
                    write_figures(directory, &report, self.force, output)?;
                }
                if !output.is_json {
                    let title = match papers.len() {
                        1 => String::new(),
                        _ => format!("{}\n", papers[at].name),
                    };
                    output.bytes((title + &to_text(&report)).as_bytes())?;
                    // The next report may take minutes.
                    output.flush()?;
                }
                reports.insert(at, report);
            }
            Ok::<(), Failure>(())
        })?;
        Ok(reports.into_values().collect())
    }

    fn measure(&self, paper: &Paper) -> Result<PaperReport> {
        let say = |text: &str| note(format!("{}: {text}", paper.name));
        let context = Context::new(self.scale, &say)?.only(self.only.clone());
        Ok(paper.measure(&context)?)
    }
}

/// The number of rows with each verdict, for each paper.
fn summary(reports: &[PaperReport]) -> String {
    let row = |report: &PaperReport| -> Vec<String> {
        let counts = report.counts().into_values().map(|count| count.to_string());
        std::iter::once(report.paper.clone()).chain(counts).collect()
    };
    let header: Vec<&str> =
        std::iter::once("paper").chain(Verdict::ALL.map(Verdict::text)).collect();
    columns(&header, &reports.iter().map(row).collect::<Vec<_>>())
}

/// A page with the tables of the report.
fn filled_page(page: &Path, report: &PaperReport) -> Result<String> {
    let text =
        std::fs::read_to_string(page).map_err(|error| Failure::file(page, "read", &error))?;
    Ok(runstone_papers::filled(&text, report)?)
}

fn write_page(page: &Path, text: &str) -> Result<()> {
    std::fs::write(page, text).map_err(|error| Failure::file(page, "write", &error))
}

fn to_text(report: &PaperReport) -> String {
    let cells = |row: &PaperRow| {
        [&row.claim, &row.paper, &row.here, &row.judged_by]
            .map(String::as_str)
            .into_iter()
            .chain([row.verdict.map_or("", Verdict::text)])
            .map(str::to_string)
            .collect::<Vec<_>>()
    };
    let mut text = String::new();
    if !report.rows.is_empty() {
        let rows: Vec<Vec<String>> = report.rows.iter().map(cells).collect();
        text.push_str(&wrapped(&["claim", "paper", "here", "judged by", "verdict"], &rows));
        let counts = report.counts().into_iter();
        let counts = counts.map(|(verdict, n)| format!("{n} {}", verdict.text()));
        text.push_str(&format!("{}\n", counts.collect::<Vec<_>>().join(", ")));
    }
    if !report.beside.is_empty() {
        let rows: Vec<Vec<String>> = report.beside.iter().map(cells).collect();
        text.push_str("Beside the claims, not counted:\n");
        text.push_str(&wrapped(&["what", "paper", "here", "what for", "verdict"], &rows));
    }
    let all = report.rows.iter().chain(&report.beside);
    let mut sides: Vec<&str> = Vec::new();
    for row in all.filter(|row| !row.sides.is_empty()) {
        if !sides.contains(&&row.sides[..]) {
            sides.push(&row.sides);
        }
    }
    for line in sides {
        text.push_str(&format!("sides: {line}\n"));
    }
    for line in &report.notes {
        text.push_str(&format!("note: {line}\n"));
    }
    if report.scale != 1.0 {
        text.push_str(&format!("note: scale {}; docs/papers is of 1\n", report.scale));
    }
    text
}

/// Columns of long texts, folded to the width of the terminal, with lines between the rows.
fn wrapped(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(u16::try_from(terminal_columns()).unwrap_or(u16::MAX));
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Refuses a directory with figures of the paper.
fn check_no_figures(directory: &Path, paper: &Paper) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Ok(()) };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let start = format!("{}-", paper.name);
    match names.filter(|name| name.starts_with(&start) && name.ends_with(".svg")).min() {
        Some(name) => {
            let what = format!("{} exists", directory.join(name).display());
            Err(Failure::usage(what, "give --force to replace figures, or another directory"))
        }
        None => Ok(()),
    }
}

fn write_figures(
    directory: &Path,
    report: &PaperReport,
    force: bool,
    output: &Output,
) -> Result<()> {
    if report.figures.is_empty() {
        note(format!("paper {}: these parts draw no figure", report.paper));
        return Ok(());
    }
    std::fs::create_dir_all(directory)
        .map_err(|error| Failure::file(directory, "create the directory", &error))?;
    for figure in &report.figures {
        let path = directory.join(format!("{}-{}.svg", report.paper, figure.name));
        output.write_file(
            &path,
            &runstone_plot::svg(std::slice::from_ref(&figure.chart)),
            force,
        )?;
    }
    Ok(())
}

fn list(output: &Output) -> Result<Exit> {
    if output.is_json {
        let all = PAPERS.iter().map(|paper| json!({ "name": paper.name, "doc": paper.doc }));
        output.json(&json!({ "papers": all.collect::<Vec<_>>() }))?;
        return Ok(Exit::Ok);
    }
    let row = |paper: &Paper| vec![paper.name.to_string(), paper.doc.to_string()];
    let rows: Vec<Vec<String>> = PAPERS.iter().map(row).collect();
    output.bytes(columns(&["paper", "what it is"], &rows).as_bytes())?;
    Ok(Exit::Ok)
}
