"""Behaves as `python -m paddle.distributed.launch` of Paddle 3.3 does, without Paddle.

    fake_launcher.py --nproc_per_node N|--gpus 0,1,.. --log_dir DIR SCRIPT.py ARGS

Each rank has a session and a workerlog.N of its own. When one fails, the others get SIGTERM, the failed rank
with the lowest number is reported, and the exit code is that of the first rank whose own is not 0. Signals
stop every rank. Killed by SIGKILL it leaves its ranks running.
"""

import os
import signal
import subprocess
import sys
import time


def main() -> None:
    arguments = iter(sys.argv[1:])
    options = {}
    for word in arguments:
        if not word.startswith("--"):
            script = word
            break
        options[word] = next(arguments)
    command = [sys.executable, "-u", script, *arguments]
    n = int(options.get("--nproc_per_node") or len(options["--gpus"].split(",")))
    log_dir = options["--log_dir"]
    print("LAUNCH INFO fake launcher", file=sys.stderr)
    ranks = []
    for rank in range(n):
        environment = os.environ | {"PADDLE_TRAINER_ID": str(rank), "PADDLE_TRAINERS_NUM": str(n)}
        with open(f"{log_dir}/workerlog.{rank}", "a") as log:
            ranks.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True))

    def stop(number, frame):
        print(f"LAUNCH INFO Terminating with signal {number:d}", file=sys.stderr)
        end(ranks)
        sys.exit(number)

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    while any(rank.poll() is None for rank in ranks):
        failed = [number for number, rank in enumerate(ranks) if rank.poll()]
        if failed:
            report(failed[0], ranks[failed[0]], log_dir)
            end(ranks)
            break
        time.sleep(0.2)
    else:
        for number, rank in enumerate(ranks):
            if rank.returncode:
                report(number, rank, log_dir)
                break
    sys.exit(next((rank.returncode for rank in ranks if rank.returncode), 0))


def report(number: int, rank: subprocess.Popen, log_dir: str) -> None:
    print(
        f"LAUNCH ERROR Container failed !!!\nContainer rank {number} status failed cmd {rank.args} code "
        f"{rank.returncode} log {log_dir}/workerlog.{number} \nenv {{}}",
        file=sys.stderr,
    )


def end(ranks: list[subprocess.Popen]) -> None:
    for rank in ranks:
        if rank.poll() is None:
            os.killpg(rank.pid, signal.SIGTERM)
    for rank in ranks:
        rank.wait(60)


main()
