"""A terminal of 80 columns and 24 lines, which is tmux's."""

import subprocess


class Terminal:
    """A terminal in which a command runs."""

    def __init__(self, folder, *command):
        self.socket = folder / "tmux.sock"
        shell = " ".join(f"'{part}'" for part in command)
        self.tmux("new-session", "-d", "-x", "80", "-y", "24", f"{shell}; echo ended with $?; sleep 600")

    def tmux(self, *args):
        return subprocess.run(["tmux", "-S", self.socket, *args], check=True, capture_output=True, text=True, timeout=60).stdout

    def screen(self):
        return self.tmux("capture-pane", "-p")

    def keys(self, *keys):
        self.tmux("send-keys", *keys)

    def close(self):
        self.tmux("kill-server")
