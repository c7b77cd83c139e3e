// Stands for webtorrent's WebRTC package, whose binary is not on the registry: the same names out of
// @roamhq/wrtc, which is the browsers' own implementation and comes built.

import wrtc from '@roamhq/wrtc'

export const { RTCIceCandidate, RTCPeerConnection, RTCSessionDescription } = wrtc
