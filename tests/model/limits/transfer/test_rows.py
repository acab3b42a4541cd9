"""Export and import of limits, as a table and as a document."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.limits.limit import HUB_PROPERTIES, MANAGED_BY, Limit, Subject, SubjectKind
from jupyter_gpu.model.limits.read_limit import read_limit
from jupyter_gpu.model.limits.transfer import cells
from jupyter_gpu.model.limits.transfer.document import read_document, write_document
from jupyter_gpu.model.limits.transfer.row import MAX_BYTES, MAX_ROWS, ImportedRow
from jupyter_gpu.model.limits.transfer.table import BOM, COLUMNS, read_table, write_table

from ... import strategies as any_
from ..strategies import ODD_NAMES, limits_of, subjects

pytestmark = pytest.mark.uncounted(after=25)

named = limits_of(
    subjects(st.sampled_from(ODD_NAMES) | any_.names(20) | st.text("=+-@\t\r\n\"';, a", min_size=1, max_size=9))
)
some = st.lists(named, max_size=5, unique_by=lambda limit: limit.subject)
FORMATS: list[tuple[Callable[..., str], Callable[[str], tuple[ImportedRow, ...]]]] = [
    (write_table, read_table),
    (lambda limits: write_table(limits, bom=True), read_table),
    (write_document, read_document),
]
ANN = Limit(Subject(SubjectKind.USER, "ann", "jhub"), max=2000)


@pytest.mark.parametrize(("write", "read"), FORMATS)
@given(limits=some)
def test_export_comes_back(
    write: Callable[..., str], read: Callable[[str], tuple[ImportedRow, ...]], limits: list[Limit]
) -> None:
    """Limits of any names are read as they were written, on the lines on which they stand."""
    text = write(limits)
    rows = read(text)
    wanted = [limit for limit in limits if limit.managed_by != HUB_PROPERTIES]
    assert [row.errors for row in rows] == [()] * len(wanted)
    assert sorted((limit.spec() for limit in wanted), key=str) == sorted(
        (row.limit.spec() for row in rows if row.limit), key=str
    )
    assert [row.line for row in rows] == sorted({row.line for row in rows})


@given(some)
def test_table_has_no_formulas(limits: list[Limit]) -> None:
    """No cell begins as a formula does, whichever separator a spreadsheet expects."""
    text = write_table(limits)
    for separator in ",;\t":
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator):
            assert all(cell[:1] == "" or cell[0] not in cells.FORMULA for cell in row)


def test_table_is_read_by_people() -> None:
    """A table has the columns of the spec, and a name that looks like a formula is text."""
    limit = read_limit(
        {"spec": {"subject": {"kind": "User", "name": "=cmd()"}, "max": 2, "priority": {"max": 5}, "remote": False}}
    )
    lines = write_table([limit]).split("\r\n")
    assert lines[0] == ",".join(f'"{column}"' for column in COLUMNS)
    assert lines[1] == '"User","\'=cmd()","","2","","","5","","","","","","false","",""'
    assert write_table([], bom=True).startswith(BOM)


def test_export_leaves_out_what_no_one_wrote() -> None:
    """Mirrored properties, limits about no one and fields of a newer version are not exported."""
    mirrored = Limit(Subject(SubjectKind.GROUP, "ml"), max=1, managed_by=HUB_PROPERTIES)
    newer = Limit(ANN.subject, max=1000, extra={"colour": "red"})
    assert json.loads(write_document([mirrored, Limit(None, max=0), newer])) == {
        "limits": [{"subject": {"kind": "User", "name": "ann", "hub": "jhub"}, "max": "1"}]
    }
    assert len(read_table(write_table([mirrored, Limit(None, max=0), newer]))) == 1


def errors(rows: Sequence[ImportedRow]) -> list[tuple[int, str]]:
    """The lines with errors."""
    return [(row.line, " ".join(row.errors)) for row in rows if row.errors]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_table_of_a_person_is_read(separator: str) -> None:
    """Columns may be fewer and in any order, separators those of another country, and empty lines are left out."""
    text = BOM + "max,kind,name,weight\n2,User,ann,3\n\n,,,\n unlimited , Default ,,\n"
    rows = read_table(text.replace(",", separator))
    assert errors(rows) == []
    assert [(row.line, row.limit and row.limit.spec()) for row in rows] == [
        (2, {"subject": {"kind": "User", "name": "ann"}, "max": "2", "weight": 3}),
        (5, {"subject": {"kind": "Default"}, "max": "unlimited"}),
    ]


def test_each_row_tells_its_errors() -> None:
    """Every row is checked, whatever is wrong with others, and says on which line it begins."""
    text = (
        "kind,name,max,models,priority,remote\n"
        'User,"ann\nlee",2,,,\n'
        "User,bob,many,A100,,\n"
        "Team,x,1,,,\n"
        "User,eve,1,,12,maybe\n"
        "User,bob,1,,,\n"
        "User,joe,1,,,,,\n"
        "User\n"
    )
    rows = read_table(text)
    assert [row.line for row in rows] == [2, 4, 5, 6, 7, 8, 9]
    assert rows[0].limit is not None
    assert [(line, says[:60]) for line, says in errors(rows)] == [
        (4, "'models' must be such as A100=1; H100=unlimited, and not 'A1"),
        (5, "'kind' must be one of User, Group, Namespace, Default, Cap. "),
        (6, "'max' must be a whole number from 0 to 9. 'remote' must be t"),
        (7, "Line 4 is about user bob too; keep one of them."),
        (8, "This row has 8 cells, and the first line names 6 columns."),
        (9, "A subject of kind User needs a 'name'. So this limit is abou"),
    ]
    assert "'max' can't be read: 'many' is not an amount" in rows[1].errors[1]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "The table is empty"),
        ("name,max\nann,2\n", 1, "'kind' is missing among them"),
        ("kind,nmae\n", 1, "The column 'nmae' is unknown; known are kind, name, hub, max"),
        ("kind,\n", 1, "The column '' is unknown"),
        ("kind,kind\n", 1, "A column is there twice"),
        ('kind,name\nUser,"ann" lee\n', 2, "The table cannot be read from here on: "),
        ('kind,name\nUser,ann\nUser,"bob', 3, "The table cannot be read from here on: "),
        ("kind\n" + "User\n" * (MAX_ROWS + 1), 1, "more than 10,000 limits"),
        ("kind\n" + "x" * MAX_BYTES, 1, "more than 8,388,608 bytes"),
    ],
)
def test_bad_table_tells_the_line(text: str, line: int, says: str) -> None:
    """An error about the whole row names its line."""
    found = errors(read_table(text))
    assert found[-1][0] == line
    assert says in found[-1][1]


@given(st.text() | st.lists(st.sampled_from([*COLUMNS, ",", "\n", '"', "User", "2", "=x", ";"])).map("".join))
def test_any_table_is_read(text: str) -> None:
    """Any text gives rows, each with a limit or with errors."""
    assert all((row.limit is None) == bool(row.errors) for row in read_table(text))


DOCUMENT = """\
{"about": "[limits]: {",
 "limits": [
  {"subject": {"kind": "User", "name": "ann"}, "max": 2},

  {"subject": {"kind": "User", "name": "bob"}, "max": "many"}, 5,
  {"subject": {"kind": "User", "name": "ann"}, "colour": "red"}
 ]}
"""


def test_document_tells_the_lines() -> None:
    """Each limit of a document is checked, and says on which line it begins."""
    rows = read_document(BOM + DOCUMENT)
    assert [row.line for row in rows] == [3, 5, 5, 6]
    assert [(line, says[:40]) for line, says in errors(rows)] == [
        (5, "'max' can't be read: 'many' is not an am"),
        (5, 'A limit must be an object such as {"subj'),
        (6, "This version does not know the fields 'c"),
    ]
    assert "Line 3 is about user ann too" in rows[3].errors[1]


def test_objects_of_the_cluster_are_read() -> None:
    """A list of kubectl is read, without the mirrors of the hub's groups; so is a bare list."""
    spec = {"subject": {"kind": "Group", "name": "ml"}, "max": "1"}
    mirror = {"metadata": {"labels": {MANAGED_BY: HUB_PROPERTIES}}, "spec": spec}
    listed = {"kind": "List", "items": [mirror, {"metadata": {"name": "x"}, "spec": spec}]}
    for value in (listed, [spec]):
        (row,) = read_document(json.dumps(value))
        assert row.limit is not None
        assert row.limit.spec() == spec


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not valid JSON"),
        ("5", "The document must be a JSON object"),
        ("{}", 'must be {"limits": […]}, or a list'),
        ('{"limits": 5}', "'limits' must be a list of at most 10000"),
        ('{"limits": [], "limits": []}', "is there twice"),
    ],
)
def test_bad_document_is_refused(text: str, says: str) -> None:
    """A text that is no document of limits is refused in one sentence."""
    ((line, found),) = errors(read_document(text))
    assert line == 1
    assert says in found


@given(any_.json_values.map(json.dumps) | st.text())
def test_any_document_is_read(text: str) -> None:
    """Any text gives rows, each with a limit or with errors."""
    assert all((row.limit is None) == bool(row.errors) for row in read_document(text))


def test_table_has_up_to_the_most_limits() -> None:
    """An import of the most limits that are allowed is read."""
    text = "kind,name\n" + "".join(f"User,user{number}\n" for number in range(MAX_ROWS))
    assert not errors(read_table(text))
