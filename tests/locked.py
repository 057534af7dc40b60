"""A room that is locked as a container's: a read-only root, a small /tmp, no network, no home.

Run as a program under `unshare`, it locks itself in and runs commands as another user.
"""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PORT = 3000  # the room has a network of its own
NEEDS = ("unshare", "mount", "ip")
_SECONDS = 300  # for one command, on a machine that is busy with other things


@dataclass(frozen=True)
class Done:
    """What a command left; `answers` are those of a server to the images that it was sent."""

    code: int
    out: str
    err: str
    answers: list[dict[str, object]]


@dataclass(frozen=True)
class Room:
    """Who runs commands, and what they find.

    Attributes:
        folder: A folder of the test; it is also the working folder, and cannot be written.
        uid: The user and group; it need not be in /etc/passwd.
        tmp_mb: The size of /tmp; 0 for one that cannot be written.
        environment: All variables but PATH.
    """

    folder: Path
    uid: int = 65534
    tmp_mb: int = 64
    environment: tuple[tuple[str, str], ...] = ()

    def run(self, *words: object, images: Sequence[Path] = ()) -> Done:
        """Run a command; with images, it is a server that is asked for each and then stopped.

        A first word without a folder is a program of this environment. Skips the test where a
        room cannot be locked.
        """
        if os.geteuid() != 0 or not all(map(shutil.which, NEEDS)):
            pytest.skip("only root can lock a room, with unshare, mount and ip")
        self.folder.chmod(0o755)
        program = Path(sys.executable).parent / str(words[0])
        job = {
            **asdict(self),
            "folder": str(self.folder),
            "words": [str(program), *map(str, words[1:])],
            "images": [str(path) for path in images],
        }
        argv = ["unshare", "--mount", "--net", sys.executable, "-P", __file__, json.dumps(job)]
        done = subprocess.run(argv, capture_output=True, text=True, cwd="/", timeout=2 * _SECONDS)
        assert done.returncode == 0, done.stderr
        return Done(**json.loads(done.stdout))


def _lock(folder: Path, tmp_mb: int) -> None:
    run: Callable[[list[str | Path]], int] = subprocess.check_call
    tmpfs = ("mount", "-t", "tmpfs", "tmpfs")
    run(["mount", "--make-rprivate", "/"])
    run([*tmpfs, "/mnt"])
    # What is needed stays where it is, below folders that are closed to others or hidden by /tmp.
    paths = [folder, ROOT, *map(Path, [sys.prefix, sys.base_prefix, *sys.path])]
    needed = sorted({path.resolve() for path in paths if path.is_dir()})
    closed = {p for path in needed for p in path.parents if not p.stat().st_mode & 1}
    hidden = {Path("/tmp"), *closed}
    for number, path in enumerate(needed):
        (Path("/mnt") / str(number)).mkdir()
        run(["mount", "--bind", path, f"/mnt/{number}"])
    for top in hidden - {p for p in hidden if hidden & {*p.parents}}:
        size = max(tmp_mb, 1) if top == Path("/tmp") else 1
        run([*tmpfs, top, "-o", f"mode=1777,size={size}m"])
    for number, path in enumerate(needed):
        path.mkdir(parents=True, exist_ok=True)
        run(["mount", "--bind", f"/mnt/{number}", path])
    run(["umount", "--recursive", "/mnt"])
    places = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for place in dict.fromkeys(places):
        system = place.startswith(("/proc", "/sys", "/dev")) and place != "/dev/shm"
        if not system and (place != "/tmp" or not tmp_mb):
            run(["mount", "-o", "remount,bind,ro", place])
    run(["ip", "link", "set", "lo", "up"])


def _post(path: str, process: "subprocess.Popen[str]") -> dict[str, object]:
    """Return the server's answer to an image; wait until there is a server."""
    url, end = f"http://127.0.0.1:{PORT}/v1/predict", time.monotonic() + _SECONDS
    while process.poll() is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(url, Path(path).read_bytes(), timeout=60) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            return dict(json.load(error))
        except OSError:
            time.sleep(0.1)
    return {"error": "no server"}


def main() -> None:
    """Lock the room, run the command, and print what it left."""
    job = json.loads(sys.argv[1])
    folder = Path(job["folder"])
    _lock(folder, job["tmp_mb"])
    process = subprocess.Popen(
        job["words"],
        env={"PATH": "/usr/bin:/bin", **dict(job["environment"])},
        cwd=folder,
        user=job["uid"],
        group=job["uid"],
        extra_groups=[],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    answers = [_post(path, process) for path in job["images"]]
    if answers:
        process.terminate()
    out, err = process.communicate(timeout=_SECONDS)
    print(json.dumps(asdict(Done(process.returncode, out, err, answers))))


if __name__ == "__main__":
    main()
