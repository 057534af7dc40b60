import csv
from pathlib import Path

import pytest

from scda.models.errors import UsageError
from scda.models.excluded import NOTHING, Excluded, read_excluded

HEAD = "finding,domain,path,class,suggested,score,other,remove,message\r\n"


def test_a_folder_above_is_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").touch()
    monkeypatch.chdir(tmp_path / "here")
    root, listed = Path("../photos"), tmp_path / "list.txt"
    listed.write_text(f"{tmp_path}/here/../photos/a.jpg\n")  # as an audit of ../photos writes it
    excluded = read_excluded(listed, {})
    assert list(excluded.others([root / "a.jpg", root / "b.jpg"], root)) == [root / "b.jpg"]
    assert excluded.hints([root]) == []


def test_a_table_of_an_audit_leaves_out_what_it_says_in_the_folder_that_it_is_about(
    tmp_path: Path,
) -> None:
    table, source, target = tmp_path / "audit.csv", tmp_path / "source", tmp_path / "target"
    rows = ["copy,source,a.jpg,,,,,true,x", "copy,target,b.jpg,,,,,TRUE,x"]
    rows += ['copy,target,"c,\n\udcff.jpg",,,,,true,x', "copy,target,d.jpg,,,,,false,x"]
    content = (HEAD + "\r\n".join(rows)).encode("utf-8", "surrogateescape")
    table.write_bytes(b"\xef\xbb\xbf" + content)
    of_target = {f"{target}/b.jpg", f"{target}/c,\n\udcff.jpg"}
    assert read_excluded(table, {"target": target}).paths == of_target
    both = read_excluded(table, {"source": source, "target": target})
    assert both.paths == of_target | {f"{source}/a.jpg"}
    assert not both.holds(source / "b.jpg", "b.jpg")
    with pytest.raises(UsageError, match="expected one folder of images, or the list"):
        read_excluded(table, {})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("finding,domain,path,class\na,b,c,d\n", "no column remove; expected the audit.csv"),
        (HEAD + f"copy,target,{'x' * 200_000},,,,,true,x", "audit.csv: damaged: line "),
    ],
)
def test_a_damaged_table_is_told_in_one_line(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "audit.csv").write_text(content)
    limit = csv.field_size_limit(131_072)  # its default; libraries raise it for the whole process
    try:
        with pytest.raises(UsageError, match=said):
            read_excluded(tmp_path / "audit.csv", {"target": tmp_path})
    finally:
        csv.field_size_limit(limit)


def test_the_digest_is_of_the_files_in_any_order_or_form(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("b\r\n./a\r\n")
    (tmp_path / "nuls").write_bytes(b"a\0b\0")
    digests = {read_excluded(tmp_path / name, {}).digest for name in ("lines", "nuls")}
    assert digests == {Excluded(frozenset("ab")).digest}
    assert Excluded(frozenset(["a\udcff"])).digest not in {*digests, None}
    assert NOTHING.digest is None
