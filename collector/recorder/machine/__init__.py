"""Figures of this process and its host, read from the kernel once a second on the recorder's thread.

It tells why a rank is slow, and which link. Everything is read without privileges, from files of the
kernel and from the process's own connections; nothing is sent. What a system does not offer is missing.
"""
