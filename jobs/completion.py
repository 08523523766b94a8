"""Prints what lets a shell complete the jobs of spark-submit.sh and their flags, made from the jobs' own parsers.

How to start it:

    ./spark-submit.sh completion bash > ~/.local/share/bash-completion/completions/spark-submit.sh
    ./spark-submit.sh completion zsh > FOLDER/_spark-submit.sh    # a folder of zsh's fpath
    python jobs/completion.py bash|zsh
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from jobs import cli, endings

if TYPE_CHECKING:
    import argparse

DESCRIPTION: Final = (
    "Prints a script by which bash or zsh completes the jobs of spark-submit.sh, their flags, and names of files.\n"
    "A shell that asks for it by itself has it from then on."
)
EXAMPLES: Final = (
    "bash > ~/.local/share/bash-completion/completions/spark-submit.sh",
    "zsh > ~/.zfunc/_spark-submit.sh     # with fpath+=~/.zfunc before compinit",
)
EXIT_CODES: Final = "exit codes: 0 done; 2 bad usage."


def parser() -> argparse.ArgumentParser:
    """Return the job's parser."""
    found = cli.job_parser("completion", DESCRIPTION, EXAMPLES, EXIT_CODES)
    found.add_argument("shell", choices=("bash", "zsh"), help="which shell")
    return found


def main() -> int:
    """Parse the arguments, and print the script."""
    shell = parser().parse_args().shell
    from jobs.completing import script

    print(script(shell))
    return endings.DONE


if __name__ == "__main__":
    sys.exit(endings.guarded(main))
