//! The screen: the router in a line, stages with their rates, queues in which batches wait, and a detail.

use super::rates::Rates;
use crate::show::screen::Detail;
use crate::text::{duration, number};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Sparkline};
use ribtide_model::{BgpSummary, Health, HealthState, Ring};

/// Queues at most.
const QUEUES: usize = 4;
/// Columns of a stage but for its curve.
const FIGURES: u16 = 54;

/// What the screen shows.
pub(super) struct Top {
    pub(super) rates: Rates,
    pub(super) summary: Option<BgpSummary>,
    pub(super) health: Option<Health>,
    /// Why the last reading failed.
    pub(super) error: Option<String>,
    pub(super) detail: Detail,
    /// The text of the detail, or why there is none.
    pub(super) text: Result<String, String>,
    /// First line and first column of the detail that are seen.
    pub(super) scroll: (u16, u16),
    pub(super) paused: bool,
    /// The prefix that is being typed.
    pub(super) input: Option<String>,
}

/// The details by their key.
pub(super) const DETAILS: [(char, &str, Detail); 7] = [
    ('1', "neighbors", Detail::Neighbors),
    ('2', "groups", Detail::Groups),
    ('3', "shards", Detail::Shards),
    ('4', "next hops", Detail::NextHops),
    ('5', "queues", Detail::Queues),
    ('6', "threads", Detail::Threads),
    ('7', "timeline", Detail::Performance),
];

impl Top {
    /// Before the first reading.
    pub(super) fn new() -> Top {
        Top {
            rates: Rates::default(),
            summary: None,
            health: None,
            error: None,
            detail: Detail::Neighbors,
            text: Ok(String::new()),
            scroll: (0, 0),
            paused: false,
            input: None,
        }
    }

    /// Draws everything.
    pub(super) fn draw(&self, frame: &mut Frame) {
        let stages = self.rates.pipeline().map_or(0, |pipeline| pipeline.stages.len()) as u16;
        let waiting = self.waiting();
        let rows = [
            Constraint::Length(2),
            Constraint::Length(stages + 1),
            Constraint::Length(waiting.len() as u16 + 1),
            Constraint::Min(3),
            Constraint::Length(1),
        ];
        let [head, way, queues, detail, foot] = Layout::vertical(rows).areas(frame.area());
        frame.render_widget(Paragraph::new(self.head()), head);
        self.draw_stages(frame, way);
        frame.render_widget(Paragraph::new(waiting_lines(&waiting)), queues);
        self.draw_detail(frame, detail);
        frame.render_widget(Paragraph::new(self.foot()), foot);
        if let Some(input) = &self.input {
            draw_input(frame, input);
        }
    }

    fn head(&self) -> Vec<Line<'_>> {
        let mut first = vec![Span::from("ribtide ").bold()];
        if let Some(s) = &self.summary {
            first.push(Span::from(format!(
                "AS {}, {}, up {}",
                s.asn,
                s.router_id,
                duration(s.uptime_seconds)
            )));
        }
        if let Some(pipeline) = self.rates.pipeline() {
            first.push(Span::from(format!(
                ", peak memory {}",
                crate::text::bytes(pipeline.peak_memory_bytes)
            )));
        }
        if self.paused {
            first.push(Span::from("  paused").yellow());
        }
        let second = match (&self.error, &self.summary) {
            (Some(error), _) => Line::from(error.as_str()).red(),
            (None, summary) => {
                let mut line = vec![];
                if let Some(s) = summary {
                    let prefixes: u64 = s.prefixes.ipv4 + s.prefixes.ipv6;
                    line.push(Span::from(format!(
                        "{} of {} neighbors established, {} prefixes, ",
                        number(s.established as u64),
                        number(s.neighbor_count as u64),
                        number(prefixes)
                    )));
                }
                line.push(self.state());
                Line::from(line)
            }
        };
        vec![Line::from(first), second]
    }

    fn state(&self) -> Span<'_> {
        match &self.health {
            None => Span::from(""),
            Some(health) if health.state == HealthState::Ok => Span::from("healthy").green(),
            Some(health) => {
                let stall = health
                    .stalls
                    .first()
                    .map(|s| format!("{} without progress for {}", s.what, duration(s.seconds)));
                let fault = || health.faults.first().map(|f| format!("{}: {}", f.what, f.why));
                Span::from(format!("degraded: {}", stall.or_else(fault).unwrap_or_default())).red()
            }
        }
    }

    fn draw_stages(&self, frame: &mut Frame, area: Rect) {
        let Some(pipeline) = self.rates.pipeline() else { return };
        let header = format!("{:<12}{:>12}{:>12}{:>6}{:>12}", "Stage", "Routes/s", "Peak/s", "CPU", "Routes");
        let line = |row: u16| Rect { y: area.y + row, height: 1, ..area };
        frame.render_widget(Line::from(header).bold(), line(0).intersection(area));
        for (row, stage) in (1..).zip(&pipeline.stages) {
            let rate = self.rates.stage(&stage.name);
            let (now, peak, busy) = rate.map_or((0, 0, 0.0), |r| (r.now(), r.peak(), r.busy));
            let text = format!(
                "{:<12}{:>12}{:>12}{:>5.0}%{:>12}",
                short(&stage.name, 12),
                number(now),
                number(peak),
                100.0 * busy,
                number(stage.routes)
            );
            let at = line(row).intersection(area);
            frame.render_widget(Line::from(text), at);
            let left = FIGURES + 2;
            if let Some(rate) = rate
                && at.width > left
            {
                let curve = Rect { x: at.x + left, width: at.width - left, ..at };
                let skip = rate.history.len().saturating_sub(usize::from(curve.width));
                let data: Vec<u64> = rate.history.iter().skip(skip).copied().collect();
                frame.render_widget(
                    Sparkline::default().data(&data).style(Style::new().fg(Color::Cyan)),
                    curve,
                );
            }
        }
    }

    /// The fullest queues in which something waits: with their wait.
    fn waiting(&self) -> Vec<(&Ring, Option<std::time::Duration>)> {
        let Some(pipeline) = self.rates.pipeline() else { return Vec::new() };
        let mut rings: Vec<&Ring> = pipeline.rings.iter().filter(|ring| ring.depth > 0).collect();
        let level = |ring: &Ring| ring.depth as f64 / ring.capacity.max(1) as f64;
        rings.sort_by(|a, b| level(b).total_cmp(&level(a)));
        rings.truncate(QUEUES);
        rings.into_iter().map(|ring| (ring, self.rates.wait(&ring.name, ring.depth))).collect()
    }

    fn draw_detail(&self, frame: &mut Frame, area: Rect) {
        let title = match &self.detail {
            Detail::Explain(prefix) => format!(" explain {prefix} "),
            detail => DETAILS
                .iter()
                .find(|(.., d)| d == detail)
                .map_or(String::new(), |(_, name, _)| format!(" {name} ")),
        };
        let keys = Line::from(" q quit, / explain, p pause, arrows scroll ").dim().right_aligned();
        let block = Block::new().borders(Borders::TOP).title(title).title(keys);
        let text = match &self.text {
            Ok(text) => Paragraph::new(text.as_str()),
            Err(why) => Paragraph::new(why.as_str()).red(),
        };
        frame.render_widget(text.scroll(self.scroll).block(block), area);
    }

    fn foot(&self) -> Line<'_> {
        let key = |(key, name, detail): &(char, &str, Detail)| {
            let span = Span::from(format!("{key} {name}  "));
            if *detail == self.detail { span.bold() } else { span.dim() }
        };
        Line::from_iter(DETAILS.iter().map(key))
    }
}

fn waiting_lines<'a>(waiting: &[(&Ring, Option<std::time::Duration>)]) -> Vec<Line<'a>> {
    if waiting.is_empty() {
        return vec![Line::from("No queue has anything in it.").dim()];
    }
    let header = format!("{:<40}{:>8}{:>8}{:>12}", "Queue", "Depth", "Bound", "Wait");
    let row = |(ring, wait): &(&Ring, Option<std::time::Duration>)| {
        let wait = wait.map_or("-".into(), |wait| format!("{:.1} ms", 1000.0 * wait.as_secs_f64()));
        let name = short(&ring.name, 40);
        let line = Line::from(format!(
            "{name:<40}{:>8}{:>8}{wait:>12}",
            number(ring.depth),
            number(ring.capacity as u64)
        ));
        if ring.depth >= ring.capacity as u64 { line.yellow() } else { line }
    };
    std::iter::once(Line::from(header).bold()).chain(waiting.iter().map(row)).collect()
}

fn draw_input(frame: &mut Frame, input: &str) {
    let area = frame.area();
    let width = area.width.min(60);
    let at = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + area.height / 3,
        width,
        height: 3.min(area.height),
    };
    frame.render_widget(Clear, at);
    let block = Block::bordered().title(" prefix or address; Enter explains, Esc leaves ");
    frame.render_widget(Paragraph::new(format!("{input}▏")).block(block), at);
}

/// A name of at most `width` columns.
fn short(name: &str, width: usize) -> String {
    match name.char_indices().nth(width) {
        None => name.into(),
        Some(_) => name.chars().take(width - 1).chain(['…']).collect(),
    }
}
