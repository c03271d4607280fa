//! `ribtide completions` and `ribtide man`: completions of shells and manual pages, from the help of the command line
//! and, for ribtide.toml(5), from the JSON Schema of the configuration.

#[cfg(feature = "router")]
mod configuration;
#[cfg(feature = "router")]
mod schema;

use crate::{Cli, text};
use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::io;
use std::path::Path;

/// The manual, for the foot line of each page.
const MANUAL: &str = "ribtide";

/// Prints the completions of a shell.
pub(crate) fn completions(shell: Shell) -> Result<(), String> {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ribtide", &mut out);
    text::write_stdout(&String::from_utf8_lossy(&out))
}

/// Writes every page into a folder, which it creates; without one prints ribtide(1).
///
/// # Errors
/// The folder or a file in it cannot be written.
pub(crate) fn man(folder: Option<&Path>) -> Result<(), String> {
    let pages = pages().map_err(|e| format!("a manual page cannot be generated: {e}"))?;
    let Some(folder) = folder else {
        let main = pages.into_iter().find(|page| page.file == "ribtide.1");
        return text::write_stdout(&main.map(|page| page.roff).unwrap_or_default());
    };
    std::fs::create_dir_all(folder).map_err(|e| format!("cannot create {}: {e}", folder.display()))?;
    for page in pages {
        let path = folder.join(&page.file);
        std::fs::write(&path, page.roff).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    }
    Ok(())
}

/// A manual page.
struct Page {
    /// The name of its file, such as `ribtide-show-bgp.1`.
    file: String,
    roff: String,
}

/// A page of each command and sub-command, and one of the configuration.
fn pages() -> io::Result<Vec<Page>> {
    // `help COMMAND` is the same text.
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    of_command(&command, None, &mut pages)?;
    #[cfg(feature = "router")]
    pages.push(Page { file: "ribtide.toml.5".into(), roff: configuration::page() });
    Ok(pages)
}

/// The page of a command and those of its sub-commands.
fn of_command(command: &clap::Command, parent: Option<&str>, pages: &mut Vec<Page>) -> io::Result<()> {
    let man = Man::new(command.clone())
        .title(command.get_display_name().unwrap_or_else(|| command.get_name()).to_uppercase())
        .source(format!("ribtide {}", env!("CARGO_PKG_VERSION")))
        .manual(MANUAL);
    let file = man.get_filename();
    let mut out = Vec::new();
    man.render(&mut out)?;
    let name = file.trim_end_matches(".1").to_owned();
    see_also(parent).to_writer(&mut out)?;
    pages.push(Page { file, roff: String::from_utf8_lossy(&out).into_owned() });
    let inner = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    inner.into_iter().try_for_each(|inner| of_command(inner, Some(&name), pages))
}

/// The last section of a page.
fn see_also(parent: Option<&str>) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    let mut line = Vec::new();
    if let Some(parent) = parent {
        line.extend([bold(parent), roman("(1), ")]);
    }
    line.extend([bold("ribtide.toml"), roman("(5), /usr/share/doc/ribtide")]);
    roff.text(line);
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of all commands as the pages have them.
    fn names(command: &clap::Command, path: &str, out: &mut Vec<String>) {
        let path = if path.is_empty() {
            command.get_name().to_owned()
        } else {
            format!("{path}-{}", command.get_name())
        };
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            names(inner, &path, out);
        }
        out.push(path);
    }

    #[test]
    fn every_command_has_a_page_with_its_own_options() {
        let mut expected = Vec::new();
        names(&Cli::command(), "", &mut expected);
        assert!(expected.contains(&"ribtide-show-bgp-neighbor".to_owned()));
        let pages = pages().unwrap();
        for name in &expected {
            let page = pages.iter().find(|page| page.file == format!("{name}.1"));
            let page = page.unwrap_or_else(|| panic!("{name} has no page"));
            assert!(page.roff.contains(".SH NAME") && page.roff.contains(".SH SYNOPSIS"), "{name}");
        }
        let explain = pages.iter().find(|page| page.file == "ribtide-explain.1").unwrap();
        assert!(explain.roff.contains(r"\-\-vrf"), "{}", explain.roff);
        let of_commands = pages.iter().filter(|page| page.file.ends_with(".1")).count();
        assert_eq!(of_commands, expected.len(), "a page of no command");
    }

    #[test]
    fn completions_name_every_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut out = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "ribtide", &mut out);
            let text = String::from_utf8(out).unwrap();
            for command in Cli::command().get_subcommands() {
                assert!(text.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
        }
    }
}
