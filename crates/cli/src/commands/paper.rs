//! `paper`: what a paper claims beside what is measured here. The papers are in `runstone-papers`;
//! here are the flags, the table and the files of the figures.

use std::path::{Path, PathBuf};

use comfy_table::{ContentArrangement, Table, presets};
use runstone_papers::{Context, PAPERS, PaperReport, PaperRow, Scale};
use serde_json::json;

use crate::failure::{Exit, Failure, Result};
use crate::layout::terminal_columns;
use crate::output::{Output, columns, note};

/// Measure what a paper claims; without a name, list the papers
#[derive(clap::Args)]
pub struct Args {
    /// Name of the paper.
    name: Option<String>,
    /// End with exit code 1 if a claim falls short.
    #[arg(long, requires = "name")]
    check: bool,
    /// Factor of the workloads' sizes; the expectations are for 1. By name: t0 is 1; t1, for
    /// kvssd and kvssd-beyond, is the paper's 10 and 5 million operations with an eighth of all
    /// sizes: a device of 2 GB in memory, about an hour for all parts.
    #[arg(long, value_name = "S", default_value = "t0")]
    scale: Scale,
    /// Measure one part of a paper that has parts; of hashkv: overall, updates, device, reserve,
    /// sizes, scans, scans-after-updates, hotness, selective, parameters; of ptierdb: table-one,
    /// baselines, uniform, scans, files; of kvssd: layers, throughput, emulator, thresholds,
    /// over-provision, latest, baselines; of kvssd-beyond: policies, garnering, global-range.
    #[arg(long, value_name = "PART", requires = "name")]
    only: Option<String>,
    /// Write the figures into a directory.
    #[arg(long, value_name = "DIR", requires = "name")]
    svg: Option<PathBuf>,
    /// Replace figures that exist.
    #[arg(long)]
    force: bool,
}

impl Args {
    pub fn run(self, output: &Output) -> Result<Exit> {
        let Some(name) = &self.name else {
            return list(output);
        };
        let paper = runstone_papers::find(name)?;
        let say = |text: &str| note(format!("{}: {text}", paper.name));
        let context = Context::new(self.scale, &say)?.only(self.only.clone());
        let report = paper.measure(&context)?;
        drop(context);
        if let Some(directory) = &self.svg {
            write_figures(directory, &report, self.force, output)?;
        }
        match output.is_json {
            true => output.json(&json!(report))?,
            false => output.bytes(to_text(&report).as_bytes())?,
        }
        Ok(if self.check && report.falls_short() { Exit::Different } else { Exit::Ok })
    }
}

fn to_text(report: &PaperReport) -> String {
    let cells = |row: &PaperRow| {
        [&row.claim, &row.paper, &row.here, &row.expected]
            .map(String::as_str)
            .into_iter()
            .chain([row.verdict.text()])
            .map(str::to_string)
            .collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = report.rows.iter().map(cells).collect();
    let mut text = wrapped(&["claim", "paper", "here", "expectation", "verdict"], &rows);
    for line in &report.notes {
        text.push_str(&format!("note: {line}\n"));
    }
    if report.scale != 1.0 {
        text.push_str(&format!("note: scale {}; expectations are for 1\n", report.scale));
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

fn write_figures(
    directory: &Path,
    report: &PaperReport,
    force: bool,
    output: &Output,
) -> Result<()> {
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
    let row = |paper: &runstone_papers::Paper| vec![paper.name.to_string(), paper.doc.to_string()];
    let rows: Vec<Vec<String>> = PAPERS.iter().map(row).collect();
    output.bytes(columns(&["paper", "what it is"], &rows).as_bytes())?;
    Ok(Exit::Ok)
}
