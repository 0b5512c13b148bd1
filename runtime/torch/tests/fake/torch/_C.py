from torch.cuda import memory


def _cuda_init():
    memory.initialize()
