"""The bundled sample runs, recorded by this project on real Horovod; see README.md."""
