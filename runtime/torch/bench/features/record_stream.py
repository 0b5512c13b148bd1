"""Blocks are freed while another stream still reads them. Slow readers on side streams
check memory that the main stream frees, allocates again and overwrites at once. If a
block is reused too early, they find wrong words. The host waits for no side stream."""

import random

import torch

from job import Marks

ROUNDS, STREAMS = 2000, 6
SLEEP = 300_000  # cycles of the device's clock, about 150 us


def main() -> None:
    marks = Marks()
    streams = [torch.cuda.Stream() for _ in range(STREAMS)]
    sizes = [8 << random.Random(n).randrange(6, 22) for n in range(40)]
    picks = random.Random(0)
    mark = 0
    for _ in range(ROUNDS):
        mark += 1
        size, stream = picks.choice(sizes), picks.choice(streams)
        main_stream = torch.cuda.current_stream()
        if picks.random() < 0.7:
            # Allocated and freed by the main stream, read by a side stream.
            tensor = marks.new(size, mark)
            stream.wait_stream(main_stream)
            with torch.cuda.stream(stream):
                if picks.random() < 0.3:
                    torch.cuda._sleep(SLEEP)
                marks.check(tensor, mark)
            tensor.record_stream(stream)
        else:
            # Allocated by a side stream, read by the main stream and a third one.
            third = picks.choice(streams)
            with torch.cuda.stream(stream):
                tensor = marks.new(size, mark)
            for reader in (main_stream, third):
                reader.wait_stream(stream)
                with torch.cuda.stream(reader):
                    marks.check(tensor, mark)
                tensor.record_stream(reader)
        del tensor
        # Requests that would reuse that memory, on both streams.
        overwrite = marks.new(size, -1)
        with torch.cuda.stream(stream):
            also = marks.new(size, -2)
        del overwrite, also
    wrong = marks.wrong()
    assert wrong == 0, f"{wrong} words were overwritten while a stream still read them"

    tensor = marks.new(1 << 20, 1)
    marks.check(tensor, 2)
    assert marks.wrong() == 1 << 17, "the check does not see wrong words"


if __name__ == "__main__":
    main()
