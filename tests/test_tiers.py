"""The slices of the nightly tier: every file in one of them, none too long, each in turn."""

from tests.tiers import SLICE_SECONDS, WORKERS, divide


def test_slices_hold_every_file_once_and_end_in_time():
    files = [f"tests/test_{number}.py" for number in range(40)]
    seconds = {file: 10.0 * number for number, file in enumerate(files) if number % 3}  # others are not known
    slices = divide(files, seconds)
    assert sorted(file for one in slices for file in one) == sorted(files)
    assert len(slices) == 9  # 5,070 s and 14 unknown files of 120 s, by two workers of 420 s
    assert max(sum(seconds.get(file, 120.0) for file in one) for one in slices) <= SLICE_SECONDS * WORKERS + 60
    assert slices == divide(files[::-1], seconds)
