# SPDX-License-Identifier: Apache-2.0
"""A link between trainerd and inferd's data port that can be held while bytes are on their way.

inferd advertises 127.0.0.2, where the proxy listens at inferd's own data port on 127.0.0.1. After
`limit` bytes of a connection the proxy takes no more of it, until release(); what is queued by then
is passed on as if nothing had happened.
"""
import socket
import threading


class Proxy:
    ADDRESS = "127.0.0.2"

    def __init__(self, port):
        self._change = threading.Condition()
        self._limit = None
        self._holding = 0
        self._links = 0
        self._server = socket.create_server((self.ADDRESS, port))
        self._port = port
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def hold(self, limit):
        """Connections made from now on stop after `limit` bytes."""
        with self._change:
            self._limit = limit

    def release(self):
        self.hold(None)
        with self._change:
            self._change.notify_all()

    def wait_holding(self, timeout, connections=1):
        with self._change:
            if not self._change.wait_for(lambda: self._holding >= connections, timeout):
                raise AssertionError("no data connection came to the point where it is held")

    def wait_gone(self, timeout):
        """Until all connections are over."""
        with self._change:
            if not self._change.wait_for(lambda: self._links == 0, timeout):
                raise AssertionError("data connections stay")

    def close(self):
        self._server.shutdown(socket.SHUT_RDWR) # wakes the thread: it must not accept from another
        self._acceptor.join()                   # socket that gets this one's number
        self._server.close()
        self.release()

    def _accept(self):
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                near.close()
                continue
            with self._change:
                self._links += 1
            threading.Thread(target=self._forward, args=(near, far), daemon=True).start()
            threading.Thread(target=self._back, args=(far, near), daemon=True).start()

    def _forward(self, near, far):
        passed = 0
        try:
            while True:
                with self._change:
                    if self._limit is not None and passed >= self._limit:
                        self._holding += 1
                        self._change.notify_all()
                        self._change.wait_for(lambda: self._limit is None)
                        self._holding -= 1
                    room = 1 << 16 if self._limit is None else min(self._limit - passed, 1 << 16)
                data = near.recv(max(room, 1))
                if not data:
                    break
                far.sendall(data)
                passed += len(data)
        except OSError:
            pass
        self._end(near, far)
        with self._change:
            self._links -= 1
            self._change.notify_all()

    def _back(self, far, near):
        try:
            while data := far.recv(1 << 16):
                near.sendall(data)
        except OSError:
            pass
        with self._change: # what is held stays on its way, as in a network
            self._change.wait_for(lambda: self._limit is None)
        self._end(near, far)

    @staticmethod
    def _end(*sockets):
        for s in sockets:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
