"""A training run over processes: `torchrun --nproc-per-node 2 distributed.py ddp FOLDER`."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from attnviz.callbacks import Recorder

way, folder = sys.argv[1], Path(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
model: nn.Module = nn.TransformerEncoder(
    nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
    2,
    enable_nested_tensor=False,
)
model.register_buffer("counted", torch.zeros(1))  # which DDP sends to all before each pass
if way == "ddp":
    model = nn.parallel.DistributedDataParallel(model)
elif way == "fsdp":
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))
    for layer in model.layers:  # type: ignore[union-attr]
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(1))
recorder = Recorder(model, x[:1], folder, every=2, loggers=[])
for step in range(4):
    recorder.step(step)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
recorder.finish()
print("done", way, dist.get_rank(), recorder.done)
dist.destroy_process_group()
