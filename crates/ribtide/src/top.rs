//! `ribtide top`: the way of routes in a terminal, each second. It reads the API and changes nothing.

mod rates;
mod screen;

use crate::client::Client;
use crate::show::Place;
use crate::show::screen::Detail;
use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use screen::{DETAILS, Top};
use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Longest wait for the answer to one reading: keys wait for it.
const ANSWER: Duration = Duration::from_secs(3);
/// Lines or columns that a key scrolls by.
const PAGE: u16 = 10;

/// The command line.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Seconds between two readings
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60))]
    interval: u64,
    #[command(flatten)]
    place: Place,
}

/// Shows the screen until a key ends it.
///
/// # Errors
/// No router answers at the start, or there is no terminal.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    if !std::io::stdout().is_terminal() {
        return Err("top needs a terminal; `ribtide show pipeline` prints the same once".into());
    }
    let client = Client::at_place(&options.place)?.within(ANSWER);
    let mut top = Top::new();
    // A router that is not there is an error of the command, not of the screen.
    let first = client.get("/v1/pipeline")?;
    top.rates.take(&first, Duration::ZERO);
    let mut terminal = ratatui::try_init().map_err(|e| format!("the terminal cannot be used: {e}"))?;
    let end = show(&mut terminal, &client, &mut top, Duration::from_secs(options.interval));
    ratatui::restore();
    end.map_err(|e| format!("the terminal failed: {e}"))
}

fn show(
    terminal: &mut DefaultTerminal,
    client: &Client,
    top: &mut Top,
    interval: Duration,
) -> std::io::Result<()> {
    let mut last = Instant::now();
    top.read_detail(client);
    top.read_router(client);
    let mut due = last + interval;
    loop {
        terminal.draw(|frame| top.draw(frame))?;
        let wait = due.saturating_duration_since(Instant::now());
        if event::poll(wait)?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
            && top.press(key, client).is_break()
        {
            return Ok(());
        }
        let now = Instant::now();
        if now < due {
            continue;
        }
        if !top.paused {
            match client.get("/v1/pipeline") {
                Ok(pipeline) => {
                    let read = Instant::now();
                    top.rates.take(&pipeline, read - last);
                    last = read;
                    top.error = None;
                    top.read_router(client);
                    top.read_detail(client);
                }
                Err(why) => top.error = Some(why),
            }
        }
        due = Instant::now() + interval;
    }
}

impl Top {
    fn read_router(&mut self, client: &Client) {
        // A router without BGP has no summary.
        self.summary = client.get("/v1/bgp/summary").ok();
        match client.get("/v1/health") {
            Ok(health) => self.health = Some(health),
            Err(why) => (self.health, self.error) = (None, Some(why)),
        }
    }

    fn read_detail(&mut self, client: &Client) {
        self.text = self.detail.text(client);
        let lines = self.text.as_ref().map_or(1, |text| text.lines().count());
        let last = u16::try_from(lines.saturating_sub(1)).unwrap_or(u16::MAX);
        self.scroll.0 = self.scroll.0.min(last);
    }

    fn open(&mut self, detail: Detail, client: &Client) {
        (self.detail, self.scroll) = (detail, (0, 0));
        self.read_detail(client);
    }

    /// A key; `Break` ends the command.
    fn press(&mut self, key: KeyEvent, client: &Client) -> ControlFlow<()> {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return ControlFlow::Break(());
        }
        if let Some(mut input) = self.input.take() {
            match key.code {
                KeyCode::Esc => return ControlFlow::Continue(()),
                KeyCode::Enter if !input.trim().is_empty() => {
                    self.open(Detail::Explain(input.trim().into()), client);
                    return ControlFlow::Continue(());
                }
                KeyCode::Backspace => drop(input.pop()),
                KeyCode::Char(c) => input.push(c),
                _ => {}
            }
            self.input = Some(input);
            return ControlFlow::Continue(());
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return ControlFlow::Break(()),
            KeyCode::Char('/') => self.input = Some(String::new()),
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Up => self.scroll.0 = self.scroll.0.saturating_sub(1),
            KeyCode::Down => self.scroll.0 = self.scroll.0.saturating_add(1),
            KeyCode::PageUp => self.scroll.0 = self.scroll.0.saturating_sub(PAGE),
            KeyCode::PageDown => self.scroll.0 = self.scroll.0.saturating_add(PAGE),
            KeyCode::Left => self.scroll.1 = self.scroll.1.saturating_sub(PAGE),
            KeyCode::Right => self.scroll.1 = self.scroll.1.saturating_add(PAGE),
            KeyCode::Home => self.scroll = (0, 0),
            KeyCode::Char(c) => {
                if let Some((.., detail)) = DETAILS.iter().find(|(key, ..)| *key == c) {
                    self.open(detail.clone(), client);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
