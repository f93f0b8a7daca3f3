"""Figures of this process and its host, read from the kernel once a second on the recorder's thread.

They show why a rank is slow, and which link. Everything is read without privileges, from files of the
kernel and from the process's own connections; nothing is sent. Figures that a system lacks are missing.
"""
