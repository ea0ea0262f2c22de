# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""A GPU made of software, for training scripts on machines that have none.

    import gpusim
    dev = gpusim.Device()
    stream = dev.stream()
    stream.h2d(batch)                       # blocks like tensor.to("cuda") from pageable memory
    stream.kernel(ms=12, name="train_step") # returns at once, "runs" for 12 ms
    stream.synchronize()                    # spins until then, as the driver does

The calls go through doubles of libcudart, libcuda and libcupti, so that a collector that is loaded
by CUDA_INJECTION64_PATH sees what it would see on a real GPU: CUDA API calls with correlation ids,
copies, kernels. Nothing is computed. Everything says that it is simulated.

Libraries are taken from $GPUSIM_LIB, else from build/gpusim of this checkout (make -C tests/gpusim).
$GPUSIM_CUPTI names the libcupti that the process has loaded, as PyTorch's wheels load theirs:
"13" (13.0, default), "13.4", "12" (12.9), "12.6", "12.4", "12.1", "11.8", or "none".
"""

import ctypes
import os
import sys
import threading
import weakref

SIMULATED = True

_HERE = os.path.dirname(os.path.abspath(__file__))
_H2D, _D2H, _D2D = 1, 2, 3
_NOT_READY = 600
_PINNED_BASE = 0x7C0000000000  # sim.h: memory that is only an address
_PAGEABLE_BASE = 0x7B0000000000

_libs = None


class GpuError(RuntimeError):
    pass


class _Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


def lib_dir():
    return os.environ.get("GPUSIM_LIB") or os.path.join(_HERE, "..", "..", "build", "gpusim")


def _cupti():
    which = os.environ.get("GPUSIM_CUPTI", "13")
    if which == "none":
        return None
    name = "libcupti.so." + which
    if which.startswith(("12.", "13.")):
        name = "cupti-%s/libcupti.so.%s" % (which, which[:2])
    return ctypes.CDLL(os.path.join(os.path.abspath(lib_dir()), name))


def _load():
    """Loads the doubles; the driver itself comes up with the first call, like the real one."""
    global _libs
    if _libs:
        return _libs
    where = os.path.abspath(lib_dir())
    if not os.path.exists(os.path.join(where, "libcuda.so.1")):
        raise GpuError("gpusim: no libraries in %s: run make -C tests/gpusim" % where)
    _cupti()
    cuda = ctypes.CDLL(os.path.join(where, "libcuda.so.1"), ctypes.RTLD_GLOBAL)
    rt = ctypes.CDLL(os.path.join(where, "libcudart.so.12"), ctypes.RTLD_GLOBAL)
    p, z, u = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint
    rt.cudaMalloc.argtypes = [ctypes.POINTER(p), z]
    rt.cudaFree.argtypes = [p]
    rt.cudaHostAlloc.argtypes = [ctypes.POINTER(p), z, u]
    rt.cudaFreeHost.argtypes = [p]
    rt.cudaMemcpyAsync.argtypes = [p, p, z, ctypes.c_int, p]
    rt.cudaMemsetAsync.argtypes = [p, ctypes.c_int, z, p]
    rt.cudaLaunchKernel.argtypes = [p, _Dim3, _Dim3, p, z, p]
    rt.gpusim_launch_many.argtypes = [p, u, p]
    rt.cudaStreamCreateWithFlags.argtypes = [ctypes.POINTER(p), u]
    rt.cudaStreamSynchronize.argtypes = [p]
    rt.cudaStreamQuery.argtypes = [p]
    rt.cudaStreamWaitEvent.argtypes = [p, p, u]
    rt.cudaEventCreateWithFlags.argtypes = [ctypes.POINTER(p), u]
    rt.cudaEventDestroy.argtypes = [p]
    rt.cudaEventRecord.argtypes = [p, p]
    rt.cudaEventQuery.argtypes = [p]
    rt.cudaEventSynchronize.argtypes = [p]
    rt.cudaGraphInstantiateWithFlags.argtypes = [ctypes.POINTER(p), p, ctypes.c_ulonglong]
    rt.cudaGraphLaunch.argtypes = [p, p]
    cuda.gpusim_function.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
    cuda.gpusim_function.restype = p
    cuda.gpusim_graph.argtypes = [ctypes.c_uint32, ctypes.c_uint64]
    cuda.gpusim_graph.restype = p
    cuda.gpusim_pinned.argtypes = [p]
    cuda.cuDeviceGetName.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_int]
    _libs = (cuda, rt)
    return _libs


def _check(err, what):
    if err:
        text = ctypes.c_char_p()
        _load()[0].cuGetErrorString(err, ctypes.byref(text))
        raise GpuError("%s: %s" % (what, text.value.decode() if text.value else err))


def _ns(ms, us, ns):
    total = ms * 1e6 + us * 1e3 + ns
    if total <= 0:
        raise ValueError("a kernel needs a duration: ms=, us= or ns=")
    return int(total)


def _host(x, pinned):
    """(address, bytes) of a tensor, a buffer, or a number of bytes that are not there at all."""
    if isinstance(x, int):
        return (_PINNED_BASE if pinned else _PAGEABLE_BASE), x
    if hasattr(x, "data_ptr"):
        if hasattr(x, "is_contiguous") and not x.is_contiguous():
            raise ValueError("gpusim copies contiguous tensors only")
        return x.data_ptr(), x.numel() * x.element_size()
    if hasattr(x, "ctypes"):  # numpy
        return x.ctypes.data, x.nbytes
    view = memoryview(x).cast("B")
    return ctypes.addressof(ctypes.c_char.from_buffer(view)), view.nbytes


class Event:
    """A CUDA event."""

    def __init__(self):
        self._h = ctypes.c_void_p()
        rt = _load()[1]
        _check(rt.cudaEventCreateWithFlags(ctypes.byref(self._h), 0), "cudaEventCreate")

    def record(self, stream):
        _check(_load()[1].cudaEventRecord(self._h, stream._h), "cudaEventRecord")
        return self

    def query(self):
        err = _load()[1].cudaEventQuery(self._h)
        if err not in (0, _NOT_READY):
            _check(err, "cudaEventQuery")
        return err == 0

    def synchronize(self):
        _check(_load()[1].cudaEventSynchronize(self._h), "cudaEventSynchronize")


class Graph:
    """A CUDA graph that runs as one piece of work."""

    def __init__(self, device, ns):
        cuda, rt = _load()
        device._graphs += 1
        raw = cuda.gpusim_graph(device._graphs, ns)
        self._h = ctypes.c_void_p()
        device._use()
        _check(rt.cudaGraphInstantiateWithFlags(ctypes.byref(self._h), raw, 0), "cudaGraphInstantiate")

    def launch(self, stream):
        _check(_load()[1].cudaGraphLaunch(self._h, stream._h), "cudaGraphLaunch")


class Stream:
    """A CUDA stream; the methods are named after what they put into it."""

    def __init__(self, device, handle):
        self.device = device
        self._h = handle

    def h2d(self, x, pinned=None, non_blocking=False):
        """Copies a tensor, an array or x bytes to the device, as tensor.to("cuda") does: the
        stream is synchronised afterwards unless non_blocking. Whether memory is pinned is known
        from its address; pinned= only says so for a number of bytes."""
        self._copy(x, pinned, non_blocking, _H2D)

    def d2h(self, x, pinned=None, non_blocking=False):
        """Copies into a tensor, an array or x bytes, as tensor.cpu() or .item() does."""
        self._copy(x, pinned, non_blocking, _D2H)

    def _copy(self, x, pinned, non_blocking, kind):
        rt = _load()[1]
        addr, sz = _host(x, pinned)
        self.device._use()
        dev = self.device._scratch(sz)
        dst, src = (dev, addr) if kind == _H2D else (addr, dev)
        _check(rt.cudaMemcpyAsync(dst, src, sz, kind, self._h), "cudaMemcpyAsync")
        if not non_blocking:
            self.synchronize()
        elif not isinstance(x, int):
            self.device._pins.used(addr, self)

    def d2d(self, nbytes):
        self.device._use()
        dev = self.device._scratch(nbytes)
        _check(_load()[1].cudaMemcpyAsync(dev, dev, nbytes, _D2D, self._h), "cudaMemcpyAsync")

    def memset(self, nbytes):
        self.device._use()
        dev = self.device._scratch(nbytes)
        _check(_load()[1].cudaMemsetAsync(dev, 0, nbytes, self._h), "cudaMemsetAsync")

    def kernel(self, ms=0, us=0, ns=0, name="kernel"):
        """Launches one kernel and returns; it runs when the stream comes to it."""
        f = self.device._function(name, _ns(ms, us, ns))
        one = _Dim3(64, 1, 1)
        self.device._use()
        err = _load()[1].cudaLaunchKernel(f, one, _Dim3(256, 1, 1), None, 0, self._h)
        _check(err, "cudaLaunchKernel")

    def kernels(self, count, ms=0, us=0, ns=0, name="kernel"):
        """Launches count equal kernels that take the given time together."""
        f = self.device._function(name, max(1, _ns(ms, us, ns) // count))
        self.device._use()
        _check(_load()[1].gpusim_launch_many(f, count, self._h), "cudaLaunchKernel")

    def record(self, event=None):
        return (event or Event()).record(self)

    def wait(self, event):
        _check(_load()[1].cudaStreamWaitEvent(self._h, event._h, 0), "cudaStreamWaitEvent")

    wait_event = wait

    def query(self):
        err = _load()[1].cudaStreamQuery(self._h)
        if err not in (0, _NOT_READY):
            _check(err, "cudaStreamQuery")
        return err == 0

    def synchronize(self):
        self.device._use()
        _check(_load()[1].cudaStreamSynchronize(self._h), "cudaStreamSynchronize")


class _Pins:
    """Pinned memory kept for reuse, as PyTorch's caching host allocator does: a block is given
    out again when nobody holds it and the copies from it are over."""

    def __init__(self):
        self.free = {}  # size -> [address]
        self.live = {}  # address -> size
        self.busy = {}  # address -> [Event]
        # Loaders have a pin-memory thread each; give() can come from a collection inside take().
        self.lock = threading.RLock()

    @staticmethod
    def round(sz):
        return 1 << max(9, (sz - 1).bit_length())

    def take(self, sz):
        with self.lock:
            return self._take(sz)

    def _take(self, sz):
        size = self.round(sz)
        for addr in list(self.free.get(size, [])):
            if all(e.query() for e in self.busy.get(addr, [])):
                self.free[size].remove(addr)
                self.busy.pop(addr, None)
                break
        else:
            p = ctypes.c_void_p()
            _check(_load()[1].cudaHostAlloc(ctypes.byref(p), size, 0), "cudaHostAlloc")
            addr = p.value
        self.live[addr] = size
        return addr

    def give(self, addr):
        with self.lock:
            self.free.setdefault(self.live.pop(addr), []).append(addr)

    def used(self, addr, stream):
        if addr in self.live:
            self.busy.setdefault(addr, []).append(Event().record(stream))


class Device:
    """The simulated device with the given index."""

    def __init__(self, index=0):
        self.index = index
        self._functions = {}
        self._graphs = 0
        self._device_mem = (None, 0)
        self._pins = _Pins()
        cuda, rt = _load()
        _check(rt.cudaSetDevice(index), "cudaSetDevice")
        name = ctypes.create_string_buffer(128)
        _check(cuda.cuDeviceGetName(name, 128, index), "cuDeviceGetName")
        self.name = name.value.decode()
        self.default_stream = Stream(self, None)
        if not os.environ.get("GPUSIM_QUIET"):
            print("gpusim: device %d is a %s; nothing is computed" % (index, self.name), file=sys.stderr)

    def _use(self):
        if self.index:
            _load()[1].cudaSetDevice(self.index)

    def _scratch(self, sz):
        """Device memory to copy to and from. It grows by cudaMalloc and is never freed, like the
        caching allocator of PyTorch once it is warm."""
        if self._device_mem[1] < sz:
            self._device_mem = (self.alloc(sz), sz)
        return self._device_mem[0]

    def _function(self, name, ns):
        key = (name, ns)
        if key not in self._functions:
            self._functions[key] = _load()[0].gpusim_function(name.encode(), ns)
        return self._functions[key]

    def stream(self):
        h = ctypes.c_void_p()
        self._use()
        _check(_load()[1].cudaStreamCreateWithFlags(ctypes.byref(h), 1), "cudaStreamCreate")
        return Stream(self, h)

    def graph(self, ms=0, us=0, ns=0):
        return Graph(self, _ns(ms, us, ns))

    def alloc(self, nbytes):
        """cudaMalloc; the address is good for nothing but free()."""
        p = ctypes.c_void_p()
        self._use()
        _check(_load()[1].cudaMalloc(ctypes.byref(p), nbytes), "cudaMalloc")
        return p.value

    def free(self, addr):
        _check(_load()[1].cudaFree(addr), "cudaFree")

    def synchronize(self):
        self._use()
        _check(_load()[1].cudaDeviceSynchronize(), "cudaDeviceSynchronize")

    def pin(self, tensor):
        """A copy of the tensor in pinned memory, as tensor.pin_memory() gives."""
        import torch

        sz = tensor.numel() * tensor.element_size()
        if not sz:
            return tensor
        addr = self._pins.take(sz)
        block = (ctypes.c_char * sz).from_address(addr)
        weakref.finalize(block, self._pins.give, addr).atexit = False
        out = torch.frombuffer(block, dtype=tensor.dtype).view(tensor.shape)
        out.copy_(tensor)
        return out

    def install_torch(self):
        """Lets DataLoader(pin_memory=True) run its pin-memory thread in a PyTorch without CUDA:
        the loader, and only it, is told that there is a device, and tensors are pinned by a copy
        into memory from cudaHostAlloc."""
        _install_torch(self)


class _Facade:
    """A module with some attributes replaced."""

    def __init__(self, module, **replaced):
        self.__dict__.update(replaced)
        self.__dict__["_module"] = module

    def __getattr__(self, name):
        return getattr(self._module, name)


def _install_torch(device):
    import torch
    import torch.utils.data.dataloader as dataloader
    from torch.utils.data._utils import pin_memory

    present = dict(
        is_available=lambda: True,
        current_device=lambda: device.index,
        set_device=lambda i: None,
        device_count=lambda: 1,
    )
    fake = dict(cuda=_Facade(torch.cuda, **present))
    if hasattr(torch, "accelerator"):
        fake["accelerator"] = _Facade(
            torch.accelerator,
            current_accelerator=lambda *a, **k: torch.device("cuda"),
            current_device_index=lambda: device.index,
            set_device_index=lambda i: None,
            **present,
        )
    facade = _Facade(torch, **fake)
    dataloader.torch = facade
    pin_memory.torch = facade
    torch.Tensor.pin_memory = lambda self, device_=None, **kw: device.pin(self)
    torch.Tensor.is_pinned = lambda self, *a, **kw: bool(_load()[0].gpusim_pinned(self.data_ptr()))


class Profiler:
    """What torch.profiler does with CUPTI, in this process: it registers its own buffer callbacks
    and switches kinds on, and off again at its end. second: by the interface for several."""

    def __init__(self, second=False, name="torch.profiler"):
        self._cupti = _cupti()
        self._lib = ctypes.CDLL(os.path.join(os.path.abspath(lib_dir()), "libgpusim_profiler.so"))
        self._lib.gpusim_profiler_start.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p]
        self._args = (self._cupti._name.encode(), int(second), name.encode())

    def start(self):
        err = self._lib.gpusim_profiler_start(*self._args)
        if err:
            raise GpuError("the profiler does not start: %d" % err)

    def stop(self):
        """Kernels and copies recorded, and buffers that it was given and that are not its own."""
        err = self._lib.gpusim_profiler_stop()
        if err:
            raise GpuError("the profiler does not stop: %d" % err)
        return self._lib.gpusim_profiler_work(), self._lib.gpusim_profiler_strange()


def cupti_state():
    """(kinds and calls switched on, buffers held and subscriptions) of the libcupti double."""
    lib = _cupti()
    return lib.dlbpf_gpusim_enabled(), lib.dlbpf_gpusim_held()


def cupti_calls():
    """How many functions of the libcupti double were called in this process; None without one."""
    lib = _cupti()
    if not lib:
        return None
    lib.dlbpf_gpusim_calls.restype = ctypes.c_uint64
    return lib.dlbpf_gpusim_calls()


if __name__ == "__main__":
    d = Device()
    s = d.stream()
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 100):
        s.h2d(19267584)
        s.kernels(20, ms=8, name="forward")
        s.kernels(20, ms=12, name="backward")
        s.synchronize()
