"""git on a repository that the test makes."""

from apprun.compare import Comparison, Outputs, Run
from programs.git import FIRST_COMMIT_S, fast_import_stream, packs


def test_git(compare: Comparison) -> None:
    identity = {
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (
            ("NAME", "A U Thor"),
            ("EMAIL", "author@example.com"),
            ("DATE", f"{FIRST_COMMIT_S} +0000"),
        )
    }

    def workload(run: Run) -> Outputs:
        def git(*words: str, stdin: bytes | None = None) -> bytes:
            environment = identity | {"GIT_CONFIG_NOSYSTEM": "1"}
            done = run.command(["git", *words], stdin=stdin, environment=environment)
            return done.stdout + done.stderr

        origin = f"file://{run.directory / 'origin.git'}"
        git("init", "--quiet", "--bare", "--initial-branch=main", "origin.git")
        history = fast_import_stream(run.size(900, 20))
        git("-C", "origin.git", "fast-import", "--quiet", stdin=history)
        git("-C", "origin.git", "-c", "pack.threads=1", "repack", "-adfq", "--depth=20")
        outputs = {"packed once": packs(run.directory / "origin.git")}
        git("clone", "--quiet", origin, "copy")
        run.write("copy/directory0/added.txt", b"added\n" * 5000)
        outputs["status"] = git("-C", "copy", "status", "--porcelain")
        git("-C", "copy", "add", "--all")
        outputs["commit"] = git("-C", "copy", "commit", "--quiet", "-m", "Add a file")
        git("-C", "copy", "push", "--quiet")
        # Two threads: which deltas are chosen is a matter of luck, the objects are not.
        git("-C", "copy", "-c", "pack.threads=2", "gc", "--quiet", "--aggressive", "--prune=now")
        git("-C", "origin.git", "-c", "pack.threads=2", "gc", "--quiet")
        for name in ("copy", "origin.git"):
            outputs[f"fsck {name}"] = git("-C", name, "fsck", "--full", "--strict", "--no-progress")
            found = git("-C", name, "cat-file", "--batch-all-objects", "--batch-check")
            outputs[f"objects {name}"] = b"\n".join(sorted(found.splitlines()))
        outputs["log"] = git("-C", "copy", "log", "--stat", "-M", "--max-count=200")
        outputs["blame"] = git("-C", "copy", "blame", "directory0/added.txt")
        outputs["archive"] = git("-C", "copy", "archive", "--format=tar", "HEAD")
        return outputs

    compare.commands("git", workload, what="fast-import, repack, clone, commit, push, gc, fsck")
