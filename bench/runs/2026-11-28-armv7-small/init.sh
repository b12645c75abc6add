#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mkdir -p /dev/net
while read m; do insmod /$m; done < /order-site
ip link set lo up
[ -e /dev/net/tun ] || mknod /dev/net/tun c 10 200
free -k
/bin/postern run > /tmp/log 2>&1 &
sleep 30
echo MEASURED
for p in /proc/[0-9]*; do grep -q postern $p/comm 2>/dev/null && { tr '\0' ' ' < $p/cmdline; echo; grep -E "VmRSS|RssAnon|RssFile" $p/status; }; done
free -k
tail -5 /tmp/log
echo ENDED
poweroff -f
