"""The benchmark harness: peers, workloads, measuring, proof, figures and tables."""
