"""What `--dry-run` prints for Kubernetes: the command, the image's Dockerfile, and manifests to apply.

How to start it:

    ./spark-submit.sh JOB ... --dry-run -- --master k8s://https://HOST:PORT ...
    python jobs/manifests.py JOB ... --dry-run -- --master k8s://https://HOST:PORT ...
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import PurePosixPath

from jobs import cli, endings
from jobs.kubernetes import FOLDER, IMAGE, IN_IMAGE, Scheduled, name_of, settings_of
from schemas.errors import InputError

JOBS = ("run", "ingest", "replay", "validate", "report", "maintain")
HEAD = """\
Everything below can be applied as it is: ./spark-submit.sh ... --dry-run -- ... | kubectl apply -f -
The namespace has to be there, and a Secret `tidemark` in it if the stores ask for credentials.

What the CronJob runs:

  {command}

The image that it names, from this folder:

  docker build --file conf/kubernetes/Dockerfile --tag {image} . && docker push {image}

{dockerfile}"""


def main() -> int:
    """Print the manifests of the job and flags on the command line; nothing is contacted."""
    job, *rest = sys.argv[1:]
    split = rest.index("--") if "--" in rest else len(rest)
    arguments, flags = rest[:split], rest[split + 1 :]
    if job not in JOBS:
        message = f"a schedule is made of {', '.join(JOBS)}; not of {job}"
        raise InputError(message)
    parser = cli.job_parser(job, "Prints manifests.", ())
    cli.add_input_flags(parser)
    cli.add_warehouse_flags(parser)
    cli.add_output_flags(parser)
    args, _others = parser.parse_known_args(arguments)  # flags of this job alone are for the pod to judge
    named = [path for _, path in (*args.logs, *args.segments)]
    paths = [*args.recording, *named, *args.metadata, args.warehouse, *([str(args.settings)] if args.settings else [])]
    ids = [args.recording_id] if args.recording_id else [PurePosixPath(path).name for path in args.recording]
    kept = [argument for argument in arguments if argument not in {"--dry-run", "--json"}]
    scheduled = Scheduled(name_of(job, ids), job, [*kept, "--json"], paths, flags)
    manifests, command = scheduled.manifests(), [f"{IN_IMAGE}/spark-submit.sh", *scheduled.command()]
    image, dockerfile = settings_of(flags)[IMAGE], (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    if args.json:
        told = {"would_run": command, "image": image, "dockerfile": dockerfile, "manifests": manifests}
        print(json.dumps(told, indent=2))
        return endings.DONE
    indented = "".join(f"    {line}\n" for line in dockerfile.splitlines())
    head = HEAD.format(command=shlex.join(command), image=shlex.quote(image), dockerfile=indented)
    print("".join(f"# {line}".rstrip() + "\n" for line in head.splitlines()), end="---\n")
    print(manifests, end="")
    return endings.DONE


if __name__ == "__main__":
    sys.exit(endings.guarded(main))
