"""Files of data: read, or refused with the place of what is wrong."""

import time

import numpy as np
import pytest

from psdfilter._frames.delimited import Wanted
from psdfilter._frames.errors import DataError
from psdfilter._frames.read import read_table


def written(tmp_path, content, name="data.csv", encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return str(path)


def read(tmp_path, content, **wanted):
    if "columns" in wanted:
        wanted["columns"] = tuple(wanted["columns"])
    return read_table(written(tmp_path, content), Wanted(**wanted))


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("y\n1.5\n\n-2e1\n", {}),
        ("1.5\n-20\n", {}),
        ("a,y\nx,1.5\nz,-20\n", {"columns": ["y"]}),
        ('"y, in m",z\n1.5,0\n-20,0\n', {"columns": ["y, in m"]}),
        ("7,1.5\n7,-20\n", {"columns": ["2"]}),
        ("1,1.5\n2,-20\n", {"columns": ["2"], "time": "1"}),
        ("2020-01-01,1.5,2\n2020-01-02,-20,2\n", {"columns": ["2"], "time": "1"}),
        ("2019,t\n1.5,1\n-20,2\n", {"columns": ["2019"], "time": "t"}),
        ("t;y\n0,5;1,5\n1,0;-20\n", {"time": "t", "decimal": ","}),
        ("y\n1.5\n-20\n".replace("\n", "\r\n"), {}),
        ("y\n1.5\n-20".replace("\n", "\r"), {}),
        ("\ufeffy\n1.5\n-20\n", {}),
        ("\ufeffy\n1.5\n-20\n".encode("utf-16-le"), {}),
        ("\ufeffy\n1.5\n-20\n".encode("utf-32-le"), {}),
        ("y\n1.5\n-20\n".encode("utf-16-be"), {"encoding": "utf-16-be"}),
        ("t,y\n20231231,1.5\n20240101,-20\n", {"time": "t", "time_format": "%Y%m%d"}),
        ("t,y\n20240131,1.5\n20240132,-20\n", {"time": "t"}),
        ("größe\n1.5\n-20\n".encode("latin-1"), {"encoding": "latin-1"}),
        ("y;z\n1,5;0\n-20;0\n", {"columns": ["y"], "decimal": ","}),
        ('y,z\n"1,5",0\n-20,0\n', {"columns": ["y"], "decimal": ","}),
        ("y\tz\n1.5\t0\n-20\t0\n", {"columns": ["y"]}),
        ("2020\n1.5\n-20\n", {"header": True}),
        ("t,y\n2020-01-01,1.5\n2020-01-02,-20\n", {"columns": ["y"], "time": "t"}),
        ("t,y\n2020-01-02,-20\n2020-01-01,1.5\n", {"time": "t", "sort": True}),
    ],
)
def test_the_same_two_numbers(content, wanted, tmp_path):
    table = read(tmp_path, content, **wanted)
    np.testing.assert_array_equal(table.values, [[1.5], [-20.0]])


@pytest.mark.parametrize("content", ["1\n0\n2\n", "5,1\n6,0\n7,2\n", "1,1\n0,0\n2,2\n"])
def test_a_cell_that_equals_the_number_of_its_column_is_data(content, tmp_path):
    last = str(content.split("\n")[0].count(",") + 1)
    table = read(tmp_path, content, columns=[last])
    np.testing.assert_array_equal(table.values[:, 0], [1, 0, 2])


@pytest.mark.parametrize("kind", ["{}", "{}.0"])
def test_nanoseconds_since_1970_are_not_rounded(kind, tmp_path):
    at = 1_700_000_000_000_000_001 + 1_000_000 * np.array([0, 1, 2, 4])
    rows = "".join(f"{kind.format(t)},1\n" for t in at)
    table = read(tmp_path, f"t,y\n{rows}", time="t")
    np.testing.assert_array_equal(table.labels.values, at)
    np.testing.assert_array_equal(table.labels.steps("ys", 1), [1, 2, 3, 5])
    polars = pytest.importorskip("polars")
    polars.DataFrame({"t": at, "y": np.ones(4)}).write_parquet(tmp_path / "n.parquet")
    table = read_table(str(tmp_path / "n.parquet"), Wanted(time="t"))
    np.testing.assert_array_equal(table.labels.values, at)
    with pytest.raises(DataError, match=r"000000001 is also that of line 2"):
        read(tmp_path, f"t,y\n{at[0]},1\n{at[0]},1\n", time="t")


@pytest.mark.parametrize("gap", ["", "NA", "NaN", "null", "N/A"])
def test_missing_values_are_nan(gap, tmp_path):
    table = read(tmp_path, f"t,y\n1,2\n2,{gap}\n3,4\n", time="t")
    np.testing.assert_array_equal(table.values[:, 0], [2, np.nan, 4])
    np.testing.assert_array_equal(table.labels.values, [1, 2, 3])


@pytest.mark.parametrize(
    ("cells", "zone", "first"),
    [
        (["2020-01-01", "2020-01-02"], None, "2020-01-01"),
        (["2020-01-01T10:30", "2020-01-01 10:31:00.5"], None, "2020-01-01T10:30"),
        (["2020-01-01T10:30Z", "2020-01-01T10:31Z"], "UTC", "2020-01-01T10:30"),
        (["2020-01-01T10:30+02:00", "2020-01-01T10:30+01:00"], "UTC", "2020-01-01T08:30"),
    ],
)
def test_dates_and_zones(cells, zone, first, tmp_path):
    table = read(tmp_path, f"t,y\n{cells[0]},1\n{cells[1]},2\n", time="t")
    assert table.labels.zone == zone
    assert table.labels.values[0] == np.datetime64(first)
    assert table.labels.values.dtype == "datetime64[ns]"


def test_dates_of_another_form(tmp_path):
    table = read(tmp_path, "t;y\n31.12.2020;1\n1.1.2021;2\n", time="t", time_format="%d.%m.%Y")
    np.testing.assert_array_equal(
        table.labels.values, np.array(["2020-12-31", "2021-01-01"], "datetime64[ns]")
    )


@pytest.mark.parametrize(
    ("content", "wanted", "message"),
    [
        ("", {}, r"data.csv: the file is empty"),
        ("  \n\n", {}, r"data.csv: the file is empty"),
        ("y\n", {}, r"data.csv:1: the file has a header and no rows"),
        ("a,yy\n1,2\n", {"columns": ["y"]}, r'no column "y" \(did you mean "yy"\?\).*"a", "yy"'),
        ("5,2\n6,3\n", {"columns": ["5"]}, r'no column "5": .*"1", "2", as .*pass --header'),
        ("a,b\n1,2\n", {}, r'say which column is observed, --column NAME: the file has "a", "b"'),
        ("y,y\n1,2\n", {"columns": ["y"]}, r'there are 2 columns "y"'),
        ("y,z\n1,2\n3,abc\n", {"columns": ["z"]}, r'data.csv:3:3: column "z": "abc" is no number'),
        ('y,z\n"1, 2",oops\n', {"columns": ["z"]}, r"data.csv:2:8: column"),
        ("y;z\n1,5;2\n", {"columns": ["y"]}, r'data.csv:2:1: .*"1,5" has a decimal comma'),
        ("y;z\n1.000,5;2\n", {"columns": ["y"], "decimal": ","}, r"data.csv:2:1: .*thousands"),
        ("t,y\n1,1,5\n", {"columns": ["y"]}, r"data.csv:2: the row has 3 cells.*decimal commas"),
        ("y\n1\ninf\n", {}, r'data.csv:3:1: .*"inf" is infinite'),
        ("y\n1\n1_000\n", {}, r'data.csv:3:1: .*"1_000" is no number'),
        ("y\n1\n1e999\n", {}, r'data.csv:3:1: .*"1e999" is infinite'),
        ('y\n"1,000"\n', {}, r"data.csv:2:1: .*remove it if it separates thousands"),
        ('t,y\n1,"1\n2,2\n', {"columns": ["y"]}, r"data.csv:3: .*quotation mark not closed"),
        ("t,y\n1,1\n2\n", {"columns": ["y"]}, r"data.csv:3: the row has 1 cell, and the first"),
        (
            "t,y\n2020-01-02,1\n2020-01-01,2\n",
            {"time": "t"},
            r"data.csv:3:1: .*2020-01-01 comes after 2020-01-02 \(line 2\).*--sort",
        ),
        (
            "t,y\n2020-01-01,1\n\n2020-01-01,2\n",
            {"time": "t"},
            r"data.csv:4:1: .*also that of line 2",
        ),
        (
            "t,y\n2020-01-02,1\n2020-01-01,2\n2020-01-02,3\n",
            {"time": "t", "sort": True},
            r"data.csv:4:1: .*also that of line 2",
        ),
        ("t,y\n2020-01-01,1\n,2\n", {"time": "t"}, r"data.csv:3:1: .*the time is missing"),
        ("t,y\n31.12.2020,1\n", {"time": "t"}, r"data.csv:2:1: .*--time-format"),
        (
            "t,y\n2020-13-01,1\n",
            {"time": "t", "time_format": "%Y-%m-%d"},
            r"data.csv:2:1: .*not a date of the form %Y-%m-%d",
        ),
        ("t,y\n0005-01-01,1\n", {"time": "t"}, r"between the years 1678 and 2262"),
        ("t,y\n1,1\nx,2\n", {"time": "t"}, r"data.csv:3:1: .*as the one before it is"),
        (
            "t,y\n2020-01-01T00:00Z,1\n2020-01-02T00:00,2\n",
            {"time": "t"},
            r"data.csv:3:1: .*has no time zone, and the first row has one",
        ),
        ("y\n1\n".encode("utf-16-le"), {}, r"not utf-8, it holds zero.*--encoding utf-16-le"),
        ("y\n1\n".encode("utf-32-be"), {}, r"not utf-8, it holds zero.*--encoding utf-32-be"),
        (b"y\n1\n\0\0\x01\0", {}, r"pass text, this seems to be none"),
        ("# made by hand\ny\n1\n", {}, r'data.csv:1: the line "# made by hand" seems to be a com'),
        ("t,y\n1,2\n", {"columns": ["t"], "time": "t"}, r'column "t" is the --time: name another'),
        (
            "t,y\n20240130,1\n20240131,1\n20240201,1\n",
            {"time": "t"},
            r'data.csv:2:1: .*"20240130" first, are dates .*--time-format %Y%m%d',
        ),
        ("t,y\n202312,1\n202401,1\n", {"time": "t"}, r"--time-format %Y%m$"),
        (b"y\n1\n\xff\xfa2\n", {}, r"data.csv:3:1: the text is not utf-8: pass --encoding"),
        ('y\n"1\n', {}, r"data.csv:2: unexpected end"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(content, wanted, message, tmp_path):
    with pytest.raises(DataError, match=message):
        read(tmp_path, content, **wanted)


def test_files_that_are_none(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_table(str(tmp_path / "nothing.csv"), Wanted())
    with pytest.raises(DataError, match="is a directory"):
        read_table(str(tmp_path), Wanted())
    with pytest.raises(DataError, match=r'type ".xlsx" are not known'):
        read_table(written(tmp_path, "x", "data.xlsx"), Wanted())
    with pytest.raises(DataError, match="no Parquet file"):
        read_table(written(tmp_path, "x", "data.parquet"), Wanted(columns=("y",)))
    with pytest.raises(DataError, match="no NetCDF file"):
        read_table(written(tmp_path, "x", "data.nc"), Wanted(columns=("y",)))


def test_hostile_names_are_shown_without_control_characters(tmp_path):
    with pytest.raises(DataError) as caught:
        read(tmp_path, "\x1b[31mred,b\n1,2\n")
    assert "\x1b" not in str(caught.value)


@pytest.mark.slow
def test_a_million_rows(tmp_path):
    values = np.round(np.random.default_rng(0).normal(size=1_000_000), 4)
    body = "\n".join(f"{i},{v}" for i, v in enumerate(values.tolist()))
    path = written(tmp_path, f"t,y\n{body}\n")
    started = time.process_time()
    table = read_table(path, Wanted(time="t"))
    assert time.process_time() - started < 20
    np.testing.assert_array_equal(table.values[:, 0], values)


DAYS = np.array(["2020-01-01", "2020-01-02", "2020-01-04"], dtype="datetime64[ns]")


def columnar(tmp_path, suffix, days=DAYS):
    path = tmp_path / f"data{suffix}"
    if suffix == ".parquet":
        polars = pytest.importorskip("polars")
        polars.DataFrame({"t": days, "y": [1.0, None, 3.0], "z": ["a", "b", "c"]}).write_parquet(
            path
        )
        return str(path)
    xarray = pytest.importorskip("xarray")
    data = xarray.Dataset({"y": ("t", [1.0, np.nan, 3.0])}, coords={"t": days})
    if suffix == ".zarr":
        pytest.importorskip("zarr")
        data.to_zarr(path, consolidated=False, mode="w")
    else:
        data.to_netcdf(path)
    return str(path)


@pytest.mark.filterwarnings("ignore:.*zarr.*", "ignore:.*onsolidat.*")
@pytest.mark.parametrize("suffix", [".parquet", ".nc", ".zarr"])
def test_columnar_files(suffix, tmp_path):
    wanted = Wanted(columns=("y",), time="t")
    table = read_table(columnar(tmp_path, suffix), wanted)
    np.testing.assert_array_equal(table.values[:, 0], [1, np.nan, 3])
    np.testing.assert_array_equal(table.labels.values, DAYS)
    with pytest.raises(DataError, match='no column "q"'):
        read_table(columnar(tmp_path, suffix), Wanted(columns=("q",)))


@pytest.mark.parametrize("suffix", [".parquet", ".nc"])
def test_columnar_files_in_no_order(suffix, tmp_path):
    path = columnar(tmp_path, suffix, DAYS[[1, 0, 2]])
    with pytest.raises(DataError, match=r"row 2: the time 2020-01-01.* comes after"):
        read_table(path, Wanted(columns=("y",), time="t"))
    table = read_table(path, Wanted(columns=("y",), time="t", sort=True))
    np.testing.assert_array_equal(table.values[:, 0], [np.nan, 1, 3])
    if suffix == ".parquet":
        with pytest.raises(DataError, match="column 'z' of the file must hold real numbers"):
            read_table(path, Wanted(columns=("z",)))
        with pytest.raises(DataError, match="holds dates: pass it as --time"):
            read_table(path, Wanted(columns=("t",)))
