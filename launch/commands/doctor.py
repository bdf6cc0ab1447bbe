"""Check this machine and its Python environment: numbered lines, a fix below each fault.

    make doctor
    python launch/commands/doctor.py [--format json]
    python launch/commands/doctor.py --deepspeed FILE

With --deepspeed it only prints the flags that correspond to a configuration of DeepSpeed, accelerate or Hugging Face's
Trainer.

Exit code 0 if all is well, 1 if there are faults, 2 if FILE cannot be translated. It takes less than a second, the
first time some more for the CPU's matrix product, and works where nothing is installed.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # the repository, not this folder
    if sys.version_info < (3, 10):  # too old to read what follows  # noqa: UP036
        version = ".".join(map(str, sys.version_info[:3]))
        sys.exit(
            "error: Python 3.10, 3.11 or 3.12 is needed, this is %s (%s)\n"  # noqa: UP031
            "fix: make doctor, which looks for one; or make doctor PYTHON=/path/to/python3.11"
            % (version, sys.executable)
        )

from data_tools.cli import Parser
from data_tools.language import localized
from launch.devices.cards import driver, list_cards
from launch.devices.cuda import paddle_build
from launch.environment import custom_ops, doctor_checks
from launch.errors import UserError
from launch.guard import guarded
from launch.preflight.report import print_findings


def examine():
    """Return all findings; each depends only on earlier ones."""
    installed = doctor_checks.installed_packages()
    return [
        doctor_checks.check_python(),
        doctor_checks.check_lock(installed),
        *doctor_checks.check_clashes(installed),
        custom_ops.check_fused_ln(),
        doctor_checks.check_cpu(),
        doctor_checks.check_products(),
        *doctor_checks.check_gpus(list_cards(), driver(), paddle_build(), "nvidia-ml-py" in installed),
        doctor_checks.check_disk(ROOT),
        doctor_checks.check_shared_memory(),
        doctor_checks.check_ports(),
        doctor_checks.check_proxy(),
        doctor_checks.check_ccache(),
    ]


def translate_file(file):
    """Print the flags for a configuration of DeepSpeed or of Hugging Face's Trainer."""
    from launch.config.deepspeed import show, translate
    from launch.config.key_files import read_source

    translation = translate(read_source(file, lenient=True))
    print(show(translation, file))
    if translation.unknown:
        raise UserError("\n".join(translation.unknown))


def main(argv):
    """Run the command."""
    parser = Parser("python launch/commands/doctor.py", __doc__)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="form of the findings")
    parser.add_argument("--deepspeed", metavar="FILE", help="print the flags for this configuration file")
    args = parser.parse_args(argv)
    if args.deepspeed:
        return translate_file(args.deepspeed)
    findings = examine()
    faults = sum(not finding.ok for finding in findings)
    if args.format == "json":
        print(json.dumps({"ok": not faults, "findings": [asdict(finding) for finding in findings]}, indent=2))
    else:
        print_findings(findings, sys.stdout)
        result = f"{faults} to mend: see the fixes above" if faults else "all well"
        print("\n" + localized(f"{len(findings)} checks, {result}"))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(guarded(main, sys.argv[1:]))
