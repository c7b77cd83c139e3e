// Replaces webtorrent's WebRTC package, whose binary is not on the registry, by the same names from
// @roamhq/wrtc, which packages the browsers' implementation with its binary.

import wrtc from '@roamhq/wrtc'

export const { RTCIceCandidate, RTCPeerConnection, RTCSessionDescription } = wrtc
