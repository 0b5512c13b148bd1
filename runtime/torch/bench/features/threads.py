"""Many threads allocate at the same time and free each other's memory, while
the main thread trains."""

import queue
import random
import threading
from typing import List, Tuple

import torch

from job import Marks, adamw, model, train

THREADS, ROUNDS = 16, 400

Parcel = Tuple[torch.Tensor, int, torch.cuda.Event]


def work(number: int, inboxes: "List[queue.Queue[Parcel]]", marks: Marks) -> None:
    """Makes tensors and sends them to other threads, which check and free them."""
    picks = random.Random(number)
    with torch.cuda.stream(torch.cuda.Stream()):
        for i in range(ROUNDS):
            mark = number * ROUNDS + i
            tensor = marks.new(8 << picks.randrange(4, 18), mark)
            made = torch.cuda.Event()
            made.record()
            inboxes[picks.randrange(THREADS)].put((tensor, mark, made))
            del tensor
            try:
                tensor, mark, made = inboxes[number].get_nowait()
            except queue.Empty:
                continue
            here = torch.cuda.current_stream()
            here.wait_event(made)
            marks.check(tensor, mark)
            tensor.record_stream(here)
            del tensor


def main() -> None:
    net = model()
    alone = train(net, adamw(net), range(6))
    net = model()
    optimizer = adamw(net)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()

    marks = [Marks() for _ in range(THREADS)]
    inboxes: "List[queue.Queue[Parcel]]" = [queue.Queue() for _ in range(THREADS)]
    errors: List[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number, inboxes, marks[number])
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    found = train(net, optimizer, range(6))
    for thread in threads:
        thread.join()
    assert not errors, errors
    assert found == alone, f"beside threads: {found}, alone: {alone}"
    for inbox in inboxes:
        while not inbox.empty():
            tensor, mark, made = inbox.get()
            torch.cuda.current_stream().wait_event(made)
            marks[0].check(tensor, mark)
            tensor.record_stream(torch.cuda.current_stream())
            del tensor
    wrong = sum(m.wrong() for m in marks)
    assert wrong == 0, f"{wrong} wrong words"
    assert torch.cuda.memory_allocated() > before, "the optimizer's state is gone"


if __name__ == "__main__":
    main()
