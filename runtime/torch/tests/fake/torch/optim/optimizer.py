from collections import OrderedDict
from itertools import chain

from torch.cuda import memory

_global_optimizer_post_hooks = OrderedDict()


def register_optimizer_step_post_hook(hook):
    _global_optimizer_post_hooks[len(_global_optimizer_post_hooks)] = hook


class Optimizer:
    def step(self):
        name = f"Optimizer.step#{type(self).__name__}.step"
        memory.annotate(name, "START")
        memory.allocate(1 << 20).free()
        memory.annotate(name, "END")
        # The real optimizer iterates in the same way, and fails if a hook removes itself.
        for hook in chain(OrderedDict().values(), _global_optimizer_post_hooks.values()):
            hook(self, (), {})
