"""`make demo-align`: pairs by a rule that can be checked."""

import json

from data_tools.stdlib_corpus import quote_pairs, write_preferences

SOURCE = """\
a = 1
def f(x):
    g(x, 'one', 2)
    g("one", 'two')
    h(""\\"text""\\")
    h(f"a", b"c")
    h('it\\\\'s')
    'doc'
    h("")
"""


def test_a_line_with_one_string_in_both_styles_of_quotes():
    assert list(quote_pairs(SOURCE)) == [
        {"prompt": "a = 1\ndef f(x):\n    g(x, ", "chosen": '"one", 2)', "rejected": "'one', 2)"}
    ]


def test_the_rows_follow_the_rule_and_those_to_evaluate_on_are_others(tmp_path):
    write_preferences(tmp_path, 4000, 256)
    rows = {name: [json.loads(line) for line in open(tmp_path / f"{name}.json")] for name in ("train", "dev")}
    assert (len(rows["train"]), len(rows["dev"])) == (4000, 256)
    for row in rows["train"] + rows["dev"]:
        assert row["chosen"].replace('"', "'") == row["rejected"] and row["chosen"].startswith('"')
        assert "'" not in row["chosen"] and '"' not in row["rejected"]
    known = {row["prompt"] for row in rows["train"]}
    assert sum(row["prompt"] in known for row in rows["dev"]) < 8  # copies within the library
