"""CSV is read as it is written, or refused with the row that is malformed."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.csv_files import read_csv
from engine.errors import AssayError

CELLS = st.text(st.sampled_from('ab",\n\r \\\0é\ufeff'), max_size=6)
ROWS = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), min_size=1, max_size=5)
)


def cells(data):
    return [["" if cell is None else cell for cell in row] for row in read_csv(data).rows()]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@given(rows=ROWS)
def test_what_the_csv_module_writes_comes_back(end, rows):
    for row in rows:
        row[-1] = f"{row[-1].rstrip(chr(13))}."  # a bare return before LF would be its line end
    text = io.StringIO(newline="")
    names = [f"c{i}" for i in range(len(rows[0]))]
    csv.writer(text, lineterminator=end).writerows([names, *rows])
    assert cells(text.getvalue().encode()) == rows


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name\ra\rb\r", [["a"], ["b"]]),  # CR alone ends every line
        ('name\r"a\rb"\rc', [["a\rb"], ["c"]]),
        ("name,n\na,1\n\n", [["a", "1"]]),  # blank last lines
        ("name\na\n\nb\n", [["a"], [""], ["b"]]),  # an empty cell; whoever needs text refuses it
        ("name,n\n\r,1\na\rb\r,2\n", [["\r", "1"], ["a\rb\r", "2"]]),  # as pandas writes it
        ('\ufeff"name"\na\n', [["a"]]),
        ('name\n5" pipe\n', [['5" pipe']]),
    ],
)
def test_what_is_clear_is_read_as_it_is_written(text, expected):
    assert cells(text.encode()) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name\na\n"he said \\"no\\""\n', "^row 2 is not CSV"),
        ('name\na\n"b\nc\nd\n', "^row 2 is not CSV"),
        ("name,n\na,1\nb,1,2\n", "^row 2: .* 3; .* 2$"),
        ('name,n,"name"\na,b,c\n', "'name'"),
        ("", "^empty CSV$"),
        ("name;n\na, b;1\n", "^cells are separated by ';'; allowed: ','$"),
        ('"name"\t"n"\na\t1\n', r"^cells are separated by '\\t'; allowed: ','$"),
    ],
)
def test_what_is_malformed_is_refused_with_its_row(text, message):
    with pytest.raises(AssayError, match=message) as caught:
        read_csv(text.encode())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_other_encodings_are_refused_with_the_line(end):
    with pytest.raises(AssayError, match=r"^line 3 is not UTF-8"):
        read_csv(end.join([b"name", b"a", b"l\xf6ve", b"b"]))
    with pytest.raises(AssayError, match=r"^line 1 is not UTF-8"):
        read_csv("name\na".encode("utf-16"))
