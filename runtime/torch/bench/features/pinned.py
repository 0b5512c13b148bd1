"""Pinned host memory and asynchronous copies in both directions on side streams. Device
memory is freed while a copy still uses it."""

import torch

from job import Marks

ROUNDS, WORDS = 100, 1 << 17


def main() -> None:
    marks = Marks()
    up, down = torch.cuda.Stream(), torch.cuda.Stream()
    back = []
    for mark in range(ROUNDS):
        host = torch.full((WORDS,), mark, dtype=torch.int64).pin_memory()
        with torch.cuda.stream(up):
            sent = host.to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(up)
        sent.record_stream(torch.cuda.current_stream())
        marks.check(sent, mark)
        doubled = sent * 2
        del sent
        down.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(down):
            returned = torch.empty(WORDS, dtype=torch.int64, pin_memory=True)
            returned.copy_(doubled, non_blocking=True)
        doubled.record_stream(down)
        del doubled
        marks.new(8 * WORDS, -1)  # overwrites that memory if it is reused too early
        back.append(returned)
        if mark % 50 == 49:
            torch.cuda.synchronize()
            for i, value in enumerate(back):
                expected = 2 * (mark - len(back) + 1 + i)
                assert bool((value == expected).all()), f"copy back of round {expected // 2} is damaged"
            back.clear()
    assert marks.wrong() == 0, f"{marks.wrong()} words arrived wrong"


if __name__ == "__main__":
    main()
