"""The interface between kubelet and node plugin: device plugin v1beta1 and pod resources v1."""
