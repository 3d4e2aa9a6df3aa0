# This file only forwards; the work is in scripts/ and in CMake. Written with
# PREFIX=/opt/motet (default /usr/local) and DESTDIR= for packagers.
PREFIX ?= /usr/local
.DEFAULT_GOAL := help
.PHONY: help demo check check-long check-torch bench install dist-bin

help: ## Print every target with a sentence.
	@awk -F ': ## ' '/^[a-z-]+: ## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile
demo: ## Install what is missing, build, and play the acts: start here.
	@scripts/demo.sh
check: ## Lints, then every test: fuzzers, ASan+UBSan, TSan, aarch64 under qemu, plain.
	@scripts/check.sh
check-long: ## 200 kills, 10,000 inits, buffers past 4 GiB, 10 minutes of each fuzzer.
	@scripts/check-long.sh
check-torch: ## The c10d backend and the bridge, with PyTorch in an environment of its own.
	@scripts/check-torch.sh
bench: ## Measure motet and its peers (Open MPI, MPICH, Gloo) in one run.
	@scripts/bench.sh
install: ## Build the release preset and install it under PREFIX.
	@scripts/install.sh "$(PREFIX)"
dist-bin: ## Pack a relocatable archive of the release preset into dist/.
	@scripts/dist-bin.sh
