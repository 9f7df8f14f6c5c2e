"""Parquet checkpoints: golden bytes, parts, damage, and the readers that are not ours."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import deltalake
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarnlog.protocol.actions import Format, MetaData
from tarnlog_server.codec import checkpoint_parquet, checkpoint_schema
from tarnlog_server.codec.checkpoint_order import count_actions
from tarnlog_server.codec.checkpoint_parquet import (
    Compression,
    ParquetInfo,
    decode_parquet_info,
    decode_parquet_part,
    encode_parquet,
    encode_parquet_checksums,
)
from tarnlog_server.codec.checkpoint_parts import EncodedCheckpoint, join_parts
from tarnlog_server.codec.damage import sha256_hex
from tarnlog_server.codec.file_columns import FileColumns
from tarnlog_server.codec.table_state import State, StateFacts, StateFile
from tarnlog_server.codec.version_file import CorruptObject
from tests.codec.states import (
    FACTS,
    FILES,
    VERSION,
    assert_noticed_or_harmless,
    fact_values,
    file_lists,
    plain_add,
    unchanged,
    unchanged_files,
    unpacked,
)

KEY = "t/_transaction_log/_checkpoints/00000000000000000042.checkpoint.parquet"
COMPRESSIONS: tuple[Compression, ...] = ("snappy", "zstd", "none")
STATE = State(unchanged(FACTS), unchanged_files(FILES), ours=True)

# Fixed bytes of STATE. Checkpoints written like this exist: add new ones beside them, never edit.
GOLDEN = unpacked(
    "eNrtWn90VNWdf+/Ny2SSTJJhyHt9wWjDCJfADmFmCD8S0y6/TMEStYGiW8zZTmZekpFkZjrzgiCHcyxmkQLuAbcgAlVMu6jodinkIKUsBQWr"
    "oln0eISlEVlLESkiixwOtVT33vt+3TfvvcxMoX90z0J+TO697/v53u/P+73ve+/0liDHcrdxPu7qjl9/WtYI/6C8FFU+1UlRVFpKieFuGn5q"
    "4yhO4Kq43R+e/ri8ivNyHs7JOasml9U45UUC3TZsGFzo9hfAnwXb4A/awUBq1dwo7vFDhz4oUEl7Gl2U/O8r5Z81bcGlrhNc6kq+rMZi1BrY"
    "w1VwH185+mxJI8dgYFdVkfKoAvjV6e3HXSRgkUZa/cR7aixGScDvI0CGgoA8N4Jb//kzvy9XAUtqCuHkMl+PryG4XMF8e83xdSwhQE9NobJA"
    "UD+Q1Ndp1PfS3BM096Ndrx8pboSPIvoPbBsFp6Phpd8IBUJ14wNB+DUh/o36CR2p0TMnjp4xM16bDKd+0CNKt36zhqoKwblgYELbsJFUeenI"
    "miUTIuo05G0EtIFPrp07UULw5q4pR8SJhcKoXNDwBkoDeAPUaopiHKPQDtD2D/9u0+du1RLcfofMP7KwOGQCcOO4s6/1nndXwcUaE3RccMBF"
    "mOrw2Q6sZVYm/lUjVPY4SO5ubhp3+nd790HaLkx7zOxiuELnFEHUh4ZTQoiBn4IBiObnAtwbK1esKyHQPDV0vcAEAxiMn6+AFWKwaU+cQHs5"
    "QylWPXDw0T5Gt2r4jY2j2Ghkp3569azBqtV1gktdybtrLEZJM0BSpB1OBXhw68AATQBf+c4ra2m0Kguwsk5wFZDAplErYAo6k8A91XvoSCki"
    "SckkaQp+QSL4N36seJT2GBJTDRTyl0f+e53mgxVzPdgl4j3dLWIkkYqmfQ0TVd84fnXLdcbgG57MlYJpxMBtk+otyJyPf9h3wKmKqTSALCDM"
    "IktLxEXF2NZdfP8yVH+FjsiiWYEOk9ZWTcnUv04roaWYK+PWXrz6r8Xqtgo8apAcx9VyB55584cugqq3hm5T4yN3r0JStqmDBbTKshsuf2fD"
    "yYNa+HBWIFONRSHVUVCSj/+w9yRtkA4TiwrwG9P1zkKLvQqn31KJIk4/W/fU9RIjp0FIE+nmwhv7HncaaNJBgQ5iihVzZYoKo9XUX53RNTuP"
    "rM8Qab09o/UCXT80oygDrLrW/4pTzwAOo49kWJzgcmix3kFkAPOotdUhwP5nH3mVSDm9jqEB1Xn9EwI0j9oD/vRHJ19ndcBzWQDPaaTPEYDm"
    "UXvAP2+78Cu3DtiSBbBFI91CAJpH7QEHXv7n98p1wFAWHYY0bYUIHZpHrQDlOPfGI33XWTLO0fALEsG/DXEOPQa5DHB13G9/8u5dKpPCAxWG"
    "7DM/EGjAX9+zDXUVVqsFy1FrSSEetn9x4EW3DROhvJgIWTIRysYEkt5//Gz9EZcad4tHITdegn4sVcLjhsFH+woMQZdeKtBLrMLjNCdNHuce"
    "3b/lj0W6IRRmMYRCTeWFhCGYR6234oKB7stN7590qYCsm7EHY9Gc/BOCEH9ZE0cxdHDLmk1OYwxd2GqrGmZhqwC/rcmhEHly/SdXi4x5NtwW"
    "DEWiE+vE9kmTOzqnTLXPs5krBdOIvXt+8ovPtxFaoahpQ2pFndc/Ia2YR+0T+xfbdqzVtFIaQKfyNHGUtc4XRdoSQf+YPX/88dndv6X1zRVk"
    "MbkCzbgKCJMzj9p7z48vXXmhTAUsHoXKsNn/MKNlzixb5TnleUH5bRcdarlTh/asZNXiQWAdVBHdOE5hiPAli1JAcI0zJ0Z4eBxnnRjNZ38U"
    "nJ556YW+Eg3+gWXKwbP8lhb825WFA3WdXhciDsyjNhzczbVwxz977GUtPI7ZdDs+irb3SD0p0dewzLfE17Aw6I/3dHW1Lvf7xCVSKkxUblt/"
    "+diVcoPgb8/hYSGXRQaV/ZOqshZuAdf74qoDWuU8dpuQWe9NnBBWbRm5wcOEGyCeXz06eNRlKNeLtCWCYEfJwE41QwTgPb9a/SjhDc1Gb9j/"
    "h/9aUUSqrFkzj2bCG8yjBkAPQ2Tix3YeO1ZkqjjKLCoOyKf60MbP3vjAmVP6Rlg5VaYoplz8zZYVDmPeIirTirksjiIMrZAuJ4oFmyM4qkA/"
    "27Jrj8NYLGhHcH6+SlOOTRR7Oxmb9g1uvVioa4PNog1WkztLaMM8aqUNeRvvHH7pyYxtSMqhf/eaU3tLjAd0SaAliyO/x0FQ/PPKDR8XGCn2"
    "KOL+z/c+PWUMdHSPQPdYhGyKZVWxoPJ45ec77ter47HKrmqM0snwDME1VpODuhJdNplHrZ0D4f74Tz+54tKBI8oDzVmAI2YngcCRoZ1EA/bB"
    "OnbN1o/6tbpp2LRSHNYWi6l0LBH3NUxabm0QUKClhmWC8U9rM0B2t3bzb44yRrub0h6IKDC9G9aPN6CwaFLAP0maLopMex+sPDHCmPVggQ+Z"
    "sSPqlKcF5bc1YQoS/P2hcx9CC6MwZTVCPPfa2d0Ogp5XjwnYC5TbvKObz7/kMt7mGePrB188udFY6haq0bXQIpi6KbLcPbz2X/Zm2P4ixfav"
    "//LTtNH0Fwn0IrPpV2PL0Ele/fW2VUVGkosVkrsHjv/CZaS5WKAXm2nWEDT7HNwjDHds/ap/16L+O/TOt7GBSUuTMKf50lKqJyL5/L72mNiF"
    "rmQWLvPFw91oKhaFw6VjNnUl4h3wE0p74bYuOAMfEf2+blEKR8MSzIDLli/3L/OVNrhhMPVxd3jgqOjru4Ni4z6uvioWl8QOMeV7uJFiW5fb"
    "GcTbdM4sKctyZEt5ErGmPYoZzPnRuP6gupcsz7YuF/6P7cfaQbMnXlQwfrX5ubOsbeJVSkZW8Qia0t4APMB9n/vi3768yqrUa/tHIuqJSHM4"
    "mYzFO+ZFOsXucG1mqYOYTDwUF1PKLeH282v2GwvWAjwtjMxKirxGZOUE2Kjx18hN415+rPfDIpW/2yQUiHTtSjEJCnR5K4pJDydefdFWHiya"
    "FbzmJ7NICEXzZy7+4TJxf6TeB1v6GXmJrH7C1Ztp9OYHZFSP9z33p/8p1utxWk+rHz95YQNZLrA0rsBppR7X/yIZY6jcin0T8VyKfWboXaND"
    "01NbXzjjzti1eljCuqKVo8NNoVF5vW0SJTjT2FK5YmoSIzikJXHORXHu0YxQAA15TnQ0NbcKr4YjhcppQP6rpCuclr6bRKEiqjyBCxjlCUQt"
    "HI1yDfIcmwxLnfpUOcyG0CYhsQXhrh4xDXfDzPWjOVYoWiQu/cfFaJhj0cOU4IAjKiMYCM+SrLHp2MOi/NHTnYjG2mORMKI+P9YNhyk4XIyC"
    "z8zOcLxDVIikpbCU1llipXDHjfABSRR1x258P5hOeMnNkUux/nJEHhjWnkhIYmqeBOV/T3t7WpTk8XJ5/M54lBwd3pmQImFoIKb1ZerMXDHe"
    "IXXKMvZ0htNNmI68NC2zVSZBLbQgyWMyJMdubQoiEwJIJ7ti0nxZIc65jbIA2K5YWuIY+clCsUvsFuMSudvSKByUxHuSULXdSegiyEyhBJrF"
    "VAcaVdjRo/Rd6UScZKdUn2oR20nSXE88kuhOpsR0WozOg8Y2Y6kkphGvFWg8HIfGNi/Rk4qITbEuMT+2OY3CLLFLCi9QvQyt57W5JuhuTSjh"
    "NyeiBh2XQTcTo9OlBaR3epRB5ACKNKxc1JkSuxOLRa7C7KWyuWCJKo6k0DF5ExqogITFOIRE229Wcv1fz9Nvgr/KYpL3nyk9rzacRX4udKyZ"
    "BbfKeeUFTCxKIrIo/5IDJVExHUnFkkgghBraE6nusCTzDakmU4nFMVjH6CsKE/iRG9owdjg53M+TUtDGdfIeTUszE1093fGcDRg+WxpJxNtj"
    "HT0pHHFvVCMlkZSIUoocuS1lDqUjJSKJLpSpGBzxY/EWMQzlpSlRHb4vFZP0YfhwWQovbIIYPSkxn22WPYRp5fsk762sqrw+HVBVnLtyEuX0"
    "VNagLCtnV47hvfzPaX4PDVqAy9Q+U+mXMz3K7R74q5Evq3RWTi6j0BkIUWQJimp2xjTP0/xlGqxmwAE6v8YZE+RYW0DyAIBBT9L8RzS44AA7"
    "Hfk1z1iDMowCapAbNgYM10/z+2nwXgF4osCub8ZOgGbSMFzi4Icpb3fwvQ6w1gUGbqzrxQy/jUb4bsppxJ+N8DMjpe49yGsgYwK/k+b30mBj"
    "MXi3yNgJY0YSKoHXWdnkhufPvLBkj8Ro0IhO0+ByCVhdYuiEMYPVYrAFEIl1ZVoKkiyK2YRd7ikF5935tb5YmoguRxLNdAAkkJ8vB4Nl+fW+"
    "ZEGmKkc7KRmYSIoYsp1/EAx4Gk1tMZVV6MxuJkUao3w6JThf6wV7h+XeA2PWUTW2PJaxsAacSk3mVqF42KXhYMfwjF4YM/liaAIMtDdWixVD"
    "IGhGVsH30fwOGmzlwNkKsjPGDMBggAUQgLHag372Nm3Eq4C8zoN1vLH/xAzDQhgK7yNXFG0zXuje/PNQYF8D+75GNs9Yb4bCm7GBUQsA281s"
    "rgQfCTe6GTOKaTOvjABrR5ANNjlthvRHogYh0sSlW0D/Lfl12Fh7ImuFaS5zCOh3bwUbb82v1yYP6MxKigDu/zq4dlt+PTd5AFsVawT4xpHg"
    "ZHV+/Td5gGfUgwTuNR/Y78uvDScLLhFyTRWnFnifHtVoetGXEXhZq1NARrGK6T3C8KsY8NFosGp0/q05Zn+pqbRFN9TDGHsFw8Nj3IUxYN2Y"
    "/DtycsWWw4FWdOPzrHqOxVH6JRomA3ByLNg8lmzQsY44cpQ2nxkhhrFCJ6xk9d+BgXH59ehksRKGgCUvATDoLprfR4MzfrDTP/T1XRYQg+UY"
    "7xUwzkaaf5oGfbXg/Hhj046V5GwpG68liEPB4ASwakLuDTtZDwWkqqxvPAiV7QmCLwL5NfDkJk1sjZbXKpmG6eWP0fwJKOCJYDA0VFePeefe"
    "oZOW9Z0Mmb/qQH9dfh0+ediSzbUPUS++PxlsnGzd7mPerNtezRm3RxjhOs1/CYU6Fbw1Jb9Wn3xO6ZkXVCpyLwO2N4A36/Nr8cmCbDha6yXk"
    "IMOfYcDrjWDgjpvdwGNWQpO1gytXcHr1uZHhn2bAzr8Hu76ZR4eOGW+G9V2Bgme+2SOMe+10cGxafg07WWp4JWcr4FaV0q4ZjaZ2HmPC1vdi"
    "pGZ596jR3Toz20HAdB0wWyGctSKvUBLJm7PAylnGF5FmfbjkCqmMMVVIWeGIeulnNEzG4Oqd4OCdZHOQbb0E4RjG2gT0slzW+vPfAhea8msM"
    "yu3mRt2gdZ3p5bfScFugdw4YmE12CtlVGkiEuSGYqpnn7wKX55C9Q7bVDMSgbORmujTGAOdo/hI8UnwbbP52fu1DOV65KeAWV9PEgeD9ZrC6"
    "Ob8moizwGWGKCJ4n8PXQm/eA63fn0jxklvQI67s47U4dVrWE6jZ9Bwzea+4fsvIzSNZD2ZLFd/KY8A4a+i94pQX0tlj3ENlk0iGIk/f7GCPF"
    "LwGn54E989CrWDM9CtND5Eh6UzV6ypsB7Y0AcfN5aT74+Xy7HiPrm88mj+m+4f5MKPVNg4WfPk3z22mwbQE4/12yCcnWh9A9Xv5wJqd97T6w"
    "7j6yQ8kOsB1fHNrqxvDuA9M/VcwfLAJnvgf23v//PUN/Cz1DZs1vdlh65GxN66ZXW+bqVvan/W3gWji3JI4tm7VDNL4Qszg07GX4gwzYHwX9"
    "kXy7h8wczZWPFZ6/gCHiWCEfvAfbwRUxWwORmQW/WSisKTAS7/WI9NHfCa515NdHZJmwhgjJRMpCwXjFg+BELKdgrN4gaC8cTS8aibuE3kXg"
    "2IND9xllYdwSzvACk4A70AVWd/0FVxcWjqLCZbwaNdfaK2h+FQ0udoPD3Xbyk8M+Ix8urFGMr1HtUK7GwVvxnFD4w928F7j4txJwreCVwql4"
    "V6KjFnpQZFEyAYOLsIolziJ1Ib8PvbhUY0x7OCKlUSknqccpWMBNCdQFJk8JBQJ1kyb7fckeaU4U+kAgODUSCU0KttcFAlMCgcDUgP4v3BZB"
    "YVSBmdcZDk2aDB+ZJN7YfxQlUz1x+V2WfLXqa5gItyAtiStGgWJ5XdAfavX70otiSTm0o2ISwifVAtEnT84n9uj3QX2nkUh8banEIhFF5ERS"
    "lGMEHOxG92U+tEpKLZ3eDnXma6ivl+nMTPTEJfSmCQb0hzqXonieQBgK7A9yg01lICZgfPH7oqlEMilGVf2Eo/CAAEu7VKIbPh3SRKzRRBte"
    "GJzoV5QWxOpo9S8M1hmGgq2ty5dTgke1D9UehdgyX6ZbQyvx+zKdDw8aXQQi+8KLU4l5Esp9kHejbWdMQ/RqRS7jI8nk+HAqlXioWtlOdWhy"
    "baA2WHl9ehVF/a1/Ua2wvLl3ekvwfwGVUchL"
)
GOLDEN_INFO = (
    b'{"sha256":"f66028fa3ccd12d4287f9045d6c6ec7c226733316d2d761acf211269be859760","version":42,"size":9,"part'
    b's":2,"createdTime":1704067200000,"checksums":["7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73'
    b'ff431ed","3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3"]}'
)


def joined(files: list[EncodedCheckpoint]) -> State:
    parts = [decode_parquet_part(f"{KEY}.{file.number}", file.data, sha256=sha256_hex(file.data)) for file in files]
    return join_parts(KEY, VERSION, None, parts)


def one(facts: StateFacts = FACTS, files: tuple[StateFile, ...] = FILES) -> bytes:
    (only,) = encode_parquet(facts, files)
    return only.data


def state_of(data: bytes) -> State:
    return join_parts(KEY, VERSION, None, [decode_parquet_part(KEY, data)])


def test_the_golden_checkpoint_is_read() -> None:
    # Its bytes name the library that wrote them, so only reading can be fixed.
    assert state_of(GOLDEN) == STATE


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_checkpoint_in_one_file(compression: Compression) -> None:
    (only,) = encode_parquet(FACTS, iter(FILES), compression=compression)
    assert (only.number, only.last, only.actions) == (1, True, count_actions(FACTS, len(FILES)))
    assert joined([only]) == STATE
    metadata = pq.ParquetFile(pa.BufferReader(only.data)).metadata
    used = metadata.row_group(0).column(0).compression
    assert used == {"snappy": "SNAPPY", "zstd": "ZSTD", "none": "UNCOMPRESSED"}[compression]


@settings(max_examples=40)
@given(fact_values, file_lists, st.sampled_from([1, 9_000, 1 << 27]))
def test_what_was_written_is_read(facts: StateFacts, files: list[StateFile], max_file_size: int) -> None:
    encoded = list(encode_parquet(facts, files, max_file_size=max_file_size))
    assert joined(encoded) == State(unchanged(facts), unchanged_files(files), ours=True)


def test_files_stay_below_the_limit() -> None:
    many = [StateFile(plain_add(f"day=2024-01-02/n=10/part-{i:032x}.parquet"), i, i) for i in range(4000)]
    limit = 40_000
    encoded = list(encode_parquet(FACTS, many, max_file_size=limit))
    assert len(encoded) > 2
    assert [file.number for file in encoded] == list(range(1, len(encoded) + 1))
    assert [file.last for file in encoded] == [False] * (len(encoded) - 1) + [True]
    # The footer comes on top of the limit.
    assert all(len(file.data) < limit + 60_000 for file in encoded)
    assert len(list(joined(encoded).files)) == 4000
    with pytest.raises(CorruptObject, match="part of it is missing"):
        joined(encoded[:-1])
    with pytest.raises(CorruptObject, match="not part 2"):
        joined([encoded[0], *encoded[2:]])


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="snappy, zstd, gzip or none"):
        next(encode_parquet(FACTS, [], compression="lz4"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sorted by path"):
        list(encode_parquet(FACTS, FILES[::-1]))


def test_columns_are_deltas() -> None:
    table = pq.read_table(io.BytesIO(one()))
    assert table.column_names == ["txn", "add", "remove", "metaData", "protocol"]
    rows: list[dict[str, Any]] = table.to_pylist()
    (protocol,) = [row["protocol"] for row in rows if row["protocol"] is not None]
    assert (protocol["minReaderVersion"], protocol["minWriterVersion"]) == (1, 2), "Delta's numbers, not ours"
    adds = [row["add"] for row in rows if row["add"] is not None]
    assert [add["path"] for add in adds] == [file.add.path for file in STATE.files]
    assert adds[-1]["partitionValues"] == [("day", None), ("n", None)]
    assert not any(add["dataChange"] for add in adds)
    assert [sum(value is not None for value in row.values()) for row in rows] == [1] * len(rows)


def test_every_flip_and_cut_is_noticed() -> None:
    data = one(msgspec.structs.replace(FACTS, metadata=None, removes=(), txns=()), FILES[1:2])
    digest = sha256_hex(data)
    for at in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        for broken in (bytes(damaged), data[:at]):
            with pytest.raises(CorruptObject) as caught:
                decode_parquet_part(KEY, broken, sha256=digest)
            assert caught.value.key == KEY
        with pytest.raises(CorruptObject):
            decode_parquet_part(KEY, data[:at])


def test_a_checkpoint_of_another_writer() -> None:
    kind = pa.struct(
        [("path", pa.string()), ("size", pa.int64()), ("modificationTime", pa.int64()), ("novel", pa.int8())]
    )
    table = pa.table(
        {
            "add": pa.array([{"path": "a", "size": 1, "modificationTime": 2, "novel": 3}, None], kind),
            "sidecar": pa.array([None, {"x": 1}], pa.struct([("x", pa.int64())])),
        }
    )
    out = io.BytesIO()
    pq.write_table(table, out)
    state = state_of(out.getvalue())
    assert not state.ours
    (file,) = state.files
    assert (file.add.path, file.add.partition_values, file.added_at_version) == ("a", {}, 0)


def test_the_golden_info() -> None:
    data = encode_parquet_checksums(VERSION, 9, [sha256_hex(b"one"), sha256_hex(b"two")], 1704067200000)
    assert data == GOLDEN_INFO
    info = decode_parquet_info(KEY, VERSION, data)
    assert (info.version, info.size, info.parts, info.created_time) == (VERSION, 9, 2, 1704067200000)
    assert info.checksums == (sha256_hex(b"one"), sha256_hex(b"two"))
    assert_noticed_or_harmless(data, lambda data: decode_parquet_info(KEY, VERSION, data), KEY)


def test_the_seeds_info_is_read() -> None:
    info = decode_parquet_info(KEY, VERSION, b'{"version":42,"size":9,"parts":null,"createdTime":7}')
    assert info == ParquetInfo(version=VERSION, size=9, created_time=7)
    single = encode_parquet_checksums(VERSION, 9, [sha256_hex(b"one")], 7)
    assert "parts" not in json.loads(single)
    for data, says in (
        (b'{"version":41,"size":9}', "version 41 in the place of 42"),
        (b'{"version":42}', "cannot be read"),
        (b'{"version":42,"size":9,"checksums":["a"]}', "checksum is missing"),
        (b"", "cannot be read"),
    ):
        with pytest.raises(CorruptObject, match=says):
            decode_parquet_info(KEY, VERSION, data)


@pytest.mark.parametrize("parts", [1, 9])
def test_delta_lake_opens_it(tmp_path: Path, parts: int) -> None:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("x", "long"), ("day", "date"))
    ]
    metadata = MetaData(
        id="7f0c",
        format=Format(),
        schema_string=json.dumps({"type": "struct", "fields": fields}),
        partition_columns=("day",),
        configuration={},
        created_time=1,
    )
    files = [
        StateFile(msgspec.structs.replace(file.add, partition_values={"day": "2024-01-01"}), 1, 2) for file in FILES
    ]
    facts = msgspec.structs.replace(FACTS, metadata=metadata)
    limit = 1 << 27 if parts == 1 else 3 * 1024
    encoded = list(encode_parquet(facts, files, max_file_size=limit))
    assert len(encoded) == parts
    log = tmp_path / "_delta_log"
    log.mkdir()
    for file in encoded:
        number = "" if parts == 1 else f".{file.number:010d}.{parts:010d}"
        (log / f"{VERSION:020d}.checkpoint{number}.parquet").write_bytes(file.data)
    hint = {"version": VERSION, "size": 9} | ({} if parts == 1 else {"parts": parts})
    (log / "_last_checkpoint").write_text(json.dumps(hint))
    table = deltalake.DeltaTable(str(tmp_path))
    assert table.version() == VERSION
    assert len(table.file_uris()) == len(FILES)
    assert [field.name for field in table.schema().fields] == ["x", "day"]
    assert table.transaction_version("stream") == 8


@pytest.mark.parametrize("compression", ["snappy", "zstd", "gzip", "none"])
@pytest.mark.parametrize("width", [50, 3000])
def test_no_file_is_larger_than_the_limit(compression: Compression, width: int) -> None:
    """Whatever the codec makes of rows that cannot be compressed, and with the footer, which many columns make long."""
    limit = 64 * 1024
    rng = random.Random(width)
    files = [
        StateFile(
            msgspec.structs.replace(
                FILES[1].add, path=f"f{i:04d}", stats=rng.randbytes(width).hex(), data_change=False
            ),
            1,
            1,
        )
        for i in range(400)
    ]
    parts = list(encode_parquet(FACTS, files, compression=compression, max_file_size=limit))
    assert max(len(part.data) for part in parts) <= limit
    assert sum(part.actions for part in parts) == count_actions(FACTS, len(files))
    assert len(parts) <= 3 * -(-sum(len(part.data) for part in parts) // limit), "no more files than it takes"
    assert sorted(joined(parts).files, key=by_path) == files


def test_many_files_stay_columns_and_tell_the_same_as_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in (10**9, 2000):
        parts = list(encode_parquet(FACTS, FILES, max_file_size=limit))
        rows = joined(parts)
        with monkeypatch.context() as few:
            few.setattr(checkpoint_parquet, "COLUMNS_FROM", 1)
            columns = joined(parts)
        assert isinstance(columns.files, FileColumns)
        assert columns.facts == rows.facts
        assert sorted(columns.files, key=by_path) == sorted(rows.files, key=by_path)


def test_few_rows_tell_the_same_whatever_is_known_of_their_columns() -> None:
    data = one()
    quick = decode_parquet_part(KEY, data, sha256=sha256_hex(data))
    assert quick.removes is not None, "removes wait where the checksum is known"
    slow = decode_parquet_part(KEY, data)
    assert slow.removes is None
    left, right = (join_parts(KEY, VERSION, None, [part]) for part in (quick, slow))
    assert (left.facts, list(left.files)) == (right.facts, list(right.files))


@pytest.mark.parametrize("length, twice", [(10, True), (100_000, False)])
def test_only_a_small_metadata_is_told_beside_its_columns(length: int, twice: bool) -> None:
    assert FACTS.metadata is not None
    metadata = msgspec.structs.replace(FACTS.metadata, description="é" * length)
    (only,) = encode_parquet(msgspec.structs.replace(FACTS, metadata=metadata), FILES)
    told = pq.ParquetFile(pa.BufferReader(only.data)).metadata.metadata
    assert ("é" * 10 in b"".join(told.values()).decode()) == twice
    assert joined([only]).facts.metadata == metadata
    assert state_of(only.data).facts.metadata == metadata, "without a checksum, from the columns"


def test_members_of_ours_without_a_value_take_no_column() -> None:
    bare = StateFile(plain_add("day=2024-01-02/n=10/a.parquet"), 1, 2)
    facts = msgspec.structs.replace(FACTS, removes=(), txns=(), skips=())
    schema = pq.ParquetFile(pa.BufferReader(one(facts, (bare,)))).schema_arrow
    kinds = dict(zip(schema.names, schema.types, strict=True))
    kept = [field.name for field in kinds["add"]]
    deltas = ["path", "partitionValues", "size", "modificationTime", "dataChange", "stats", "tags"]
    assert kept[:7] == deltas, "Delta's are there without a value too"
    assert set(kept[7:]) <= {"hasFooterOffsets", "addedAtVersion", "addedAtTimestamp"}
    assert [field.name for field in kinds["remove"]][-1] == "tags"
    assert [field.name for field in kinds["txn"]] == ["appId", "version", "lastUpdated"]


@given(
    st.lists(st.none() | st.dictionaries(st.sampled_from("abc"), st.none() | st.text(max_size=2))),
    st.lists(st.booleans()),
)
def test_structs_are_found_wherever_they_lie(maps: list[dict[str, str | None] | None], there: list[bool]) -> None:
    kept = min(len(maps), len(there))
    items = [None if value is None else list(value.items()) for value in maps[:kept]]
    children = [pa.array(items, pa.map_(pa.string(), pa.string())), pa.array(range(kept), pa.int64())]
    absent = pa.array([not yes for yes in there[:kept]], pa.bool_())
    column = pa.StructArray.from_arrays(children, names=["map", "number"], mask=absent)
    expected = [
        {"number": number} | ({} if value is None else {"map": value})
        for number, (value, yes) in enumerate(zip(maps, there, strict=False))
        if yes
    ]
    assert checkpoint_schema.members(column) == expected
    assert checkpoint_schema.members(column.slice(1)) == [row for row in expected if row["number"] != 0]


def test_some_parts_may_be_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = list(encode_parquet(FACTS, FILES, max_file_size=2000))
    assert len(parts) > 1
    rows = joined(parts)
    monkeypatch.setattr(checkpoint_parquet, "COLUMNS_FROM", max(part.actions for part in parts))
    assert sorted(joined(parts).files, key=by_path) == sorted(rows.files, key=by_path)


def test_without_a_checksum_every_value_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_parquet, "COLUMNS_FROM", 1)
    assert isinstance(state_of(one()).files, list)


def by_path(file: StateFile) -> str:
    return file.add.path
