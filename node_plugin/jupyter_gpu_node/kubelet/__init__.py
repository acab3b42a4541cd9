"""What the kubelet and the node plugin say to each other: device plugin v1beta1 and pod resources v1."""
