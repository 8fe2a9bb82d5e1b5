"""What is used of pyslurm exists in pyslurm's own sources, as PyPI has them, with the arguments that are passed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from activities.scheduler import slurm_library, slurm_library_program
from tests.scheduler.test_pyslurm import CLUSTER, FAKE
from tests.slurm.release import cache_directory

VERSION = "25.11.2"
DOWNLOAD_TIMEOUT_S = 100
PROGRAM = ast.parse(Path(slurm_library_program.__file__).read_text())


class Sources:
    """pyslurm's own source files, of which no part is run."""

    def __init__(self, archive: Path) -> None:
        self._texts: dict[str, str] = {}
        with tarfile.open(archive) as files:
            for member in files.getmembers():
                file = files.extractfile(member)
                if file is not None and member.name.endswith((".py", ".pyx", ".pxd")):
                    self._texts[member.name.partition("/")[2]] = file.read().decode()

    def module(self, name: str) -> str:
        return self._texts[f"pyslurm/{name}"]

    def members(self, module: str, kind: str) -> dict[str, str]:
        """Return the methods and properties of a class with their parameters."""
        body = _class_body(self.module(module), kind)
        return {found[1]: found[2] for found in re.finditer(r"^    def (\w+)\(([^()]*)\)", body, re.MULTILINE)}

    def attributes(self, module: str, kind: str) -> set[str]:
        """Return the attributes that a class declares as public."""
        public = _class_body(self.module(module), kind).partition("    cdef public:\n")[2]
        return set(re.findall(r"^        (\w+)$", public, re.MULTILINE))


def _class_body(text: str, kind: str) -> str:
    after = re.split(rf"^(?:cdef )?class {kind}\b.*:$", text, flags=re.MULTILINE)[1]
    return re.split(r"^[^\s#]", after, maxsplit=1, flags=re.MULTILINE)[0]


@pytest.fixture(scope="module")
def sources() -> Sources:
    directory = cache_directory() / "pyslurm"
    archive = directory / f"pyslurm-{VERSION}.tar.gz"
    if not archive.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "pyslurm"]
        try:
            subprocess.run(
                [*command, "--dest", str(directory), f"pyslurm=={VERSION}"],
                check=True,
                capture_output=True,
                timeout=DOWNLOAD_TIMEOUT_S,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            pytest.skip(f"pyslurm's sources cannot be downloaded here: {error}")
    return Sources(archive)


def used_of(variable: str) -> set[str]:
    """Return what the program takes of each `variable`, as an attribute or as the name of a text."""
    return set(_used_of(variable))


def _used_of(variable: str) -> Iterator[str]:
    for node in ast.walk(PROGRAM):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name == variable:
                yield attribute
            case ast.Call(func=ast.Name(id="_text"), args=[ast.Name(id=name), ast.Constant(value=str(attribute))]) if (
                name == variable
            ):
                yield attribute


def used_of_pyslurm() -> set[str]:
    """Return the dotted names that the program takes of pyslurm, such as ``Job.load``."""
    names = {ast.unparse(node) for node in ast.walk(PROGRAM) if isinstance(node, ast.Attribute)}
    return {name.removeprefix("pyslurm.") for name in names if re.fullmatch(r"pyslurm(\.\w+)+", name)}


def test_the_names_that_are_used_are_known_to_this_test() -> None:
    assert used_of_pyslurm() == {
        *("__version__", "RPCError", "slurmctld", "slurmctld.Config", "slurmctld.Config.load"),
        "slurmctld.ping_all",
        *("Job", "Job.load", "Jobs", "Jobs.load", "Nodes", "Nodes.load", "JobSubmitDescription"),
    }


def test_pyslurm_has_every_name_that_is_used(sources: Sources) -> None:
    package = sources.module("__init__.py")
    for name in ("Job", "Jobs", "JobSubmitDescription", "Nodes", "RPCError", "slurmctld", "__version__"):
        assert re.search(rf"^(from .* import .*|    )\b{name}\b", package, re.MULTILINE), name
    assert re.search(r"\bConfig,", sources.module("core/slurmctld/__init__.py"))
    assert re.search(r"\bping_all,", sources.module("core/slurmctld/__init__.py"))
    assert "load" in sources.members("core/slurmctld/config.pyx", "Config")
    assert "self.errno" in _class_body(sources.module("core/error.pyx"), "RPCError")


def test_a_job_has_every_field_that_is_read(sources: Sources) -> None:
    fields = used_of("job")
    assert "requeue_count" in fields
    assert fields <= set(sources.members("core/job/job.pyx", "Job"))


def test_a_node_has_every_field_that_is_read(sources: Sources) -> None:
    fields = used_of("node")
    assert "partitions" in fields
    assert fields <= set(sources.members("core/node.pyx", "Node"))


def test_the_configuration_and_a_ping_have_every_field_that_is_read(sources: Sources) -> None:
    settings, pings = used_of("conf"), used_of("ping")
    assert {"version", "accounting_store_flags"} <= settings
    assert settings <= set(sources.members("core/slurmctld/config.pyx", "Config"))
    assert pings == {"hostname", "is_primary", "is_responding"}
    assert pings <= sources.attributes("core/slurmctld/base.pxd", "PingResponse")


def test_the_verbs_take_what_they_are_given(sources: Sources) -> None:
    job = sources.members("core/job/job.pyx", "Job")
    assert job["load"] == "job_id"
    assert job["__init__"] == "self, job_id"
    assert job["requeue"] == "self, hold=False"
    assert job["modify"] == "self, JobSubmitDescription changes"
    assert (job["release"], job["cancel"], job["get_batch_script"]) == ("self", "self", "self")
    assert sources.members("core/job/job.pyx", "Jobs")["load"].startswith("preload_passwd_info=False")
    assert sources.members("core/node.pyx", "Nodes")["load"].startswith("preload_passwd_info=False")


def test_an_update_takes_every_change_that_is_made(sources: Sources) -> None:
    library = Path(slurm_library.__file__).read_text()
    changes = set(re.findall(r'changes\["(\w+)"\]', library)) | set(re.findall(r"_modify\(job_id, (\w+)=", library))

    assert changes == {"excluded_nodes", "admin_comment", "begin_time", "is_requeueable"}
    assert changes <= sources.attributes("core/job/submission.pxd", "JobSubmitDescription")
    for change in changes:
        assert f"self.{change}" in sources.module("core/job/submission.pyx")


def test_what_was_read_of_its_ways_is_still_so(sources: Sources) -> None:
    assert 'if val and val[0] != "\\0":' in sources.module("utils/cstr.pyx"), "an update takes no empty value"
    assert "zero_is_noval=True" in sources.module("utils/uint.pyx"), "the task number 0 comes as None"
    assert "if self.ptr.state_desc:" in sources.module("core/job/job.pyx"), "a description hides the reason"
    assert "exit_state -= 128" in sources.module("utils/helpers.pyx"), "exit codes from 128 on come less 128"


def test_the_module_in_its_place_has_nothing_that_it_has_not(sources: Sources) -> None:
    job = sources.members("core/job/job.pyx", "Job")
    node = sources.members("core/node.pyx", "Node")
    assert set(CLUSTER["config"]) <= set(sources.members("core/slurmctld/config.pyx", "Config"))
    assert set(CLUSTER["jobs"][0]) <= set(job)
    assert set(CLUSTER["nodes"][0]) <= set(node)
    fake = next(
        part for part in ast.parse(FAKE.read_text()).body if isinstance(part, ast.ClassDef) and part.name == "Job"
    )
    assert {part.name for part in fake.body if isinstance(part, ast.FunctionDef)} <= set(job)
