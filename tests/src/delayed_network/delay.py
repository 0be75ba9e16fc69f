"""Connects two network namespaces by a link with a delay: delay.py CLIENT_PID

Runs in the server's namespace and moves one of two TUN devices into that of the process CLIENT_PID. Each packet that it
reads from one device is written to the other after half of the round-trip time. Each line of standard input sets the
round-trip time in milliseconds and is confirmed by a line of standard output. Ends at the end of standard input.
"""

import collections
import fcntl
import os
import select
import struct
import subprocess
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TUN = 0x0001
IFF_NO_PI = 0x1000
MAX_PACKET = 65536


def open_tun(name):
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return device


def run(line):
    subprocess.run(line.split(), check=True)


def connect(client_pid):
    """Returns the two devices."""
    devices = open_tun("server"), open_tun("client")
    # A device keeps its file when it moves to another namespace.
    run(f"ip link set client netns {client_pid}")
    enter = f"nsenter --net=/proc/{client_pid}/ns/net "
    for prefix, name, own, other in [("", "server", 1, 2), (enter, "client", 2, 1)]:
        run(f"{prefix}ip link set lo up")
        run(f"{prefix}ip address add 192.0.2.{own} peer 192.0.2.{other} dev {name}")
        run(f"{prefix}ip link set {name} up")
    return devices


def forward(devices):
    queues = {device: collections.deque() for device in devices}
    other = dict(zip(devices, reversed(devices)))
    delay = 0.0
    while True:
        due = min((queue[0][0] for queue in queues.values() if queue), default=None)
        timeout = None if due is None else max(0.0, due - time.monotonic())
        readable, _, _ = select.select([sys.stdin, *devices], [], [], timeout)
        now = time.monotonic()
        for device in devices:
            if device in readable:
                queues[other[device]].append((now + delay, os.read(device, MAX_PACKET)))
            queue = queues[device]
            while queue and queue[0][0] <= now:
                os.write(device, queue.popleft()[1])
        if sys.stdin in readable:
            line = sys.stdin.readline()
            if not line:
                return
            delay = float(line) / 2000
            print(line.strip(), flush=True)


# Before all ordinary processes: a busy machine must not add to the delay.
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
forward(connect(int(sys.argv[1])))
