"""The zoo from the command line: `python tests/zoo/run.py --tol 1e-3 [names, tags or 1d / 2d]`.

Every chunk of cases runs in a process of its own: compiled programs pile up.
"""

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))


def select(words):
    from zoo.registry import ZOO

    if not words:
        return list(ZOO)
    return [n for n, c in ZOO.items() if n in words or c.tags & set(words) or f"{c.dim}d" in words]


def case_of(name):
    """A case of the registry, or random-seed."""
    from zoo.random_models import draw
    from zoo.registry import ZOO

    if name.startswith("random-"):
        return draw(int(name.split("-")[1]))
    return ZOO[name]


def work(names, tols):
    """Inside a process: one line of JSON per outcome."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from zoo.score import score

    for name in names:
        for tol in tols:
            try:
                out = score(case_of(name), tol).to_dict()
            except ValueError as error:
                out = {"name": name, "failed": str(error)}
            print("OUT " + json.dumps(out), flush=True)  # noqa: T201


def launch(names, tols, seconds):
    command = [sys.executable, __file__, "--inside", "--tol", *map(str, tols), "--names", *names]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds * len(names) * len(tols)
        )
        text, trouble = done.stdout, done.stderr[-500:] if done.returncode else ""
    except subprocess.TimeoutExpired as error:
        text, trouble = (error.stdout or b"").decode(), "out of time"
    found = [json.loads(line[4:]) for line in text.splitlines() if line.startswith("OUT ")]
    return found, trouble


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="names, tags, 1d or 2d; all by default")
    parser.add_argument("--tol", nargs="+", type=float, default=[1e-3])
    parser.add_argument("--random", nargs=2, type=int, help="seeds of random models, from and to")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--chunk", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=120.0, help="per case and tolerance")
    parser.add_argument("--out", type=Path, help="file for the outcomes, a line of JSON each")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--names", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        work(args.names, args.tol)
        return
    names = select(args.words) if args.words or not args.random else []
    if args.random:
        names += [f"random-{seed}" for seed in range(*args.random)]
    chunks = [names[i : i + args.chunk] for i in range(0, len(names), args.chunk)]
    from zoo.score import Outcome, table

    outcomes = []
    with ThreadPoolExecutor(args.jobs) as pool:
        for found, trouble in pool.map(lambda c: launch(c, args.tol, args.seconds), chunks):
            for row in found:
                if "failed" in row:
                    print(row["name"], "was not scored:", row["failed"])  # noqa: T201
                    continue
                outcomes.append(Outcome(**row))
                if args.out:
                    with args.out.open("a") as file:
                        file.write(json.dumps(row) + "\n")
            if trouble:
                print("a chunk stopped:", trouble)  # noqa: T201
    lost = sorted(set(names) - {o.name for o in outcomes})
    if lost:
        print("no outcome:", *lost)  # noqa: T201
    print(table(outcomes))  # noqa: T201


if __name__ == "__main__":
    main()
