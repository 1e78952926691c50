"""Printed fixes work: each is tried on its own object, and what it says can be sent."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from types import SimpleNamespace

import dask.array as da
import matplotlib as mpl
import numpy as np
import pandas as pd
import PIL.Image
import pytest
import xarray as xr
from matplotlib import figure
from scipy import integrate, interpolate, spatial, stats

from safeser import families
from safeser.allowed import Allowed
from safeser.errors import SafeserError
from safeser.families.instead import INSTEAD, known_instead
from safeser.gate.values import Grant
from tests.samples.typed import FAMILIES, sent

ONE = np.random.default_rng(0).normal(size=12)
SPLINE = interpolate.CubicSpline([0, 1, 2], [0, 1, 4])


class Plain:
    pass


class Odd:
    def __init__(self):
        vars(self)["a b"] = 1


def falling(t, y):
    return -y


def made_as(name, **attributes):
    """Return an object of a class that is called *name*, as a library has it that may be absent."""
    module, _, qualname = name.partition(":")
    return type(qualname, (), {"__module__": module, **attributes})()


POINT = made_as("shapely.lib:Geometry")
WKT = made_as("pyproj.crs.crs:CRS", to_wkt=lambda self: "LOCAL_CS[]")
GEOGRAPHY = {
    "shapely": SimpleNamespace(to_wkb=lambda x, include_srid: np.full(np.shape(x), b"\1", object)),
    "geopandas": SimpleNamespace(array=SimpleNamespace(to_wkb=lambda x: np.array([b"\1"], object))),
}
GEOGRAPHY["geopandas.array"] = GEOGRAPHY["geopandas"].array


@pytest.fixture(autouse=True)
def _geography(monkeypatch):
    for name, module in GEOGRAPHY.items():
        monkeypatch.setitem(sys.modules, name, module)


UNSENT = {
    "spline": SPLINE,
    "b-spline": interpolate.make_interp_spline(range(5), range(5)),
    "line": interpolate.interp1d([0, 1], [1, 2]),
    "distribution": stats.norm(1, scale=2),
    "density": stats.gaussian_kde(ONE),
    "steps": stats.ecdf(ONE),
    "fit": stats.goodness_of_fit(stats.norm, ONE, n_mc_samples=5),
    "indices": stats.sobol_indices(func=lambda x: x.sum(0), n=2, dists=[stats.uniform()] * 2),
    "volume": integrate.cubature(lambda x: x[:, 0], [0], [1]),
    "dense": integrate.solve_ivp(falling, [0, 1], [1.0], dense_output=True),
    "hull": spatial.ConvexHull(ONE.reshape(6, 2)),
    "rotation": spatial.transform.Rotation.identity(),
    "tree of datasets": xr.DataTree.from_dict({"/a": xr.Dataset({"x": 1})}),
    "groups": pd.DataFrame({"a": [1, 2]}).groupby("a"),
    "figure": figure.Figure(),
    "axes": figure.Figure().subplots(),
    "image": PIL.Image.new("L", (2, 2)),
    "geometry": POINT,
    "ring": made_as("shapely.geometry.polygon:LinearRing"),
    "prepared geometry": made_as("shapely.prepared:PreparedGeometry", context=POINT),
    "tree of geometries": made_as("shapely.strtree:STRtree", geometries=np.array([POINT, None])),
    "coordinates": made_as("shapely.coords:CoordinateSequence", __iter__=lambda _: iter([(1, 2)])),
    "geometries": made_as("geopandas.array:GeometryArray", crs=WKT),
    "frame of geometries": made_as(
        "geopandas.base:GeoPandasBase", crs=None, to_wkb=lambda x: pd.DataFrame({"g": [b"\1"]})
    ),
    "reference system": WKT,
    "iterator": zip([1], [2], strict=True),
    "generator": (n for n in [1]),
    "module": np,
}
#: Deprecated in today's SciPy, which warns when it is made.
QUIET = {"anderson": lambda: stats.anderson(ONE)}


def refusal(x):
    with pytest.raises(SafeserError) as caught:
        families.serialize([1, x], FAMILIES)
    return caught.value


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*UNSENT, *QUIET])
def test_what_is_printed_can_be_sent(name):
    mpl.use("agg")
    x = UNSENT[name] if name in UNSENT else QUIET[name]()
    row = known_instead(type(x))
    assert refusal(x).fix == str(row)
    sent(eval(row.expression, {"x": x, "io": io, **GEOGRAPHY}))


@pytest.mark.parametrize("held", [POINT, (POINT,), {"a": [POINT]}, {POINT}, {POINT: 1}, None])
def test_geometries_are_found_wherever_they_are(held):
    held = held or np.array([[POINT, None]], object)
    frame = pd.DataFrame({"g": np.array([POINT], object)})
    for value in (held, xr.DataArray(frame["g"].to_numpy(), dims="x"), frame):
        assert "return shapely.to_wkb(x, include_srid=True). shapely.from_wkb(part) makes" in str(
            refusal(value)
        )


def test_a_pickle_that_its_reader_refuses_is_no_way_out():
    # Dask's workers may write pickles, and policies take few.
    reads = Grant("context", ("dask", "msgpack", "pickle"), profiles=("data",))
    for name in ("spline", "figure", "rotation", "distribution"):
        for value in (UNSENT[name], [np.ones(2), (UNSENT[name], 1)]):
            with pytest.raises(SafeserError) as caught:
                families.serialize(value, reads.families, reads=reads)
            assert caught.value.fix == str(known_instead(type(UNSENT[name])))
    # Nor is one for what holds data that are not in memory, unless the policy lists it.
    lazy = xr.Dataset({"n": ("x", da.ones(2))})
    for value in (lazy, [lazy, lazy.n], lazy.variables["n"]):
        with pytest.raises(SafeserError, match="leave out parallel=True"):
            families.serialize(value, reads.families, reads=reads)
    allow = (Allowed("xarray.core.variable:Variable", "class"),)
    header, _ = families.serialize(lazy, reads.families, reads=replace(reads, allow=allow))
    assert "xarray:Dataset" in str(header)


def test_every_row_has_an_object():
    named = {id(known_instead(type(x))) for x in UNSENT.values()} | {
        id(INSTEAD["scipy.stats._morestats:AndersonResult"])
    }
    assert {id(row) for row in INSTEAD.values()} == named


def test_a_fix_that_fails_is_not_printed():
    odd = stats.norm(object())
    assert "In place of" not in refusal(odd).fix
    tree = xr.DataTree.from_dict({"/a": xr.Dataset({"x": ((), np.array(object()))})})
    assert "In place of" not in refusal(tree).fix
    # Nor is a registration that would refuse it.
    assert "register_serialization(Odd" in refusal(Odd()).fix
    assert "register_generic(Plain)" in refusal(Plain()).fix
