#!/bin/bash
# two cards into one guest
exec qemu-system-x86_64 -name guest=train2,process=train2 -machine q35,accel=kvm -cpu host -m 64G -smp 16 \
  -device pcie-root-port,id=rp0,chassis=1,slot=1,bus=pcie.0,addr=0x1c,multifunction=on \
  -device pcie-root-port,id=rp1,chassis=2,slot=2,bus=pcie.0,addr=0x1c.1 \
  -device vfio-pci,host=0000:21:00.0,bus=rp0,addr=0x0,multifunction=on,x-vga=off \
  -device vfio-pci,host=0000:21:00.1,bus=rp0,addr=0x0.1 \
  -device vfio-pci,host=0000:4d:00.0,bus=rp1 \
  -drive file=/srv/vm/train2.qcow2,if=virtio -nographic
