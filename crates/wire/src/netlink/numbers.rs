//! The numbers of the route family of netlink that ribtide uses, under the kernel's own names
//! (`linux/netlink.h`, `linux/rtnetlink.h`, `linux/nexthop.h`, `linux/if_link.h`, `linux/if_addr.h`).
#![expect(missing_docs, reason = "the kernel's names; its headers document them")]

pub const AF_UNSPEC: u8 = 0;
pub const AF_INET: u8 = 2;
pub const AF_INET6: u8 = 10;
pub const AF_MPLS: u8 = 28;

pub const NLMSG_NOOP: u16 = 1;
pub const NLMSG_ERROR: u16 = 2;
pub const NLMSG_DONE: u16 = 3;
pub const RTM_NEWLINK: u16 = 16;
pub const RTM_DELLINK: u16 = 17;
pub const RTM_GETLINK: u16 = 18;
pub const RTM_NEWADDR: u16 = 20;
pub const RTM_DELADDR: u16 = 21;
pub const RTM_GETADDR: u16 = 22;
pub const RTM_NEWROUTE: u16 = 24;
pub const RTM_DELROUTE: u16 = 25;
pub const RTM_GETROUTE: u16 = 26;
pub const RTM_NEWNEIGH: u16 = 28;
pub const RTM_DELNEIGH: u16 = 29;
pub const RTM_GETNEIGH: u16 = 30;
pub const RTM_NEWNEXTHOP: u16 = 104;
pub const RTM_DELNEXTHOP: u16 = 105;
pub const RTM_GETNEXTHOP: u16 = 106;

/// Types of FRR's module `dplane_fpm_sonic`; no kernel has them.
pub const RTM_NEWSRV6LOCALSID: u16 = 1000;
pub const RTM_DELSRV6LOCALSID: u16 = 1001;
pub const RTM_NEWPICCONTEXT: u16 = 2000;
pub const RTM_DELPICCONTEXT: u16 = 2001;
pub const RTM_NEWSRV6VPNROUTE: u16 = 3000;
pub const RTM_DELSRV6VPNROUTE: u16 = 3001;

pub const NLM_F_REQUEST: u16 = 0x1;
pub const NLM_F_MULTI: u16 = 0x2;
pub const NLM_F_ACK: u16 = 0x4;
pub const NLM_F_DUMP_INTR: u16 = 0x10;
pub const NLM_F_REPLACE: u16 = 0x100;
pub const NLM_F_EXCL: u16 = 0x200;
pub const NLM_F_DUMP: u16 = 0x300;
pub const NLM_F_CREATE: u16 = 0x400;
pub const NLM_F_APPEND: u16 = 0x800;
/// On an acknowledgement: the request's payload was left out of it.
pub const NLM_F_CAPPED: u16 = 0x100;
/// On an acknowledgement: attributes follow the request.
pub const NLM_F_ACK_TLVS: u16 = 0x200;
pub const NLMSGERR_ATTR_MSG: u16 = 1;

/// On the number of an attribute: its value is a list of attributes.
pub const NLA_F_NESTED: u16 = 0x8000;

pub const RTA_DST: u16 = 1;
pub const RTA_SRC: u16 = 2;
pub const RTA_IIF: u16 = 3;
pub const RTA_OIF: u16 = 4;
pub const RTA_GATEWAY: u16 = 5;
pub const RTA_PRIORITY: u16 = 6;
pub const RTA_PREFSRC: u16 = 7;
pub const RTA_METRICS: u16 = 8;
pub const RTA_MULTIPATH: u16 = 9;
pub const RTA_FLOW: u16 = 11;
pub const RTA_TABLE: u16 = 15;
pub const RTA_VIA: u16 = 18;
pub const RTA_NEWDST: u16 = 19;
pub const RTA_ENCAP_TYPE: u16 = 21;
pub const RTA_ENCAP: u16 = 22;
pub const RTA_TTL_PROPAGATE: u16 = 26;
pub const RTA_NH_ID: u16 = 30;
/// ribtide's own attribute for a text. No kernel and no other daemon has so high a number: they
/// ignore it.
pub const RTA_WHY: u16 = 0x3a57;

/// The MPLS encapsulation, and its attribute with the labels (`linux/lwtunnel.h`,
/// `linux/mpls_iptunnel.h`).
pub const LWTUNNEL_ENCAP_MPLS: u16 = 1;
pub const MPLS_IPTUNNEL_DST: u16 = 1;

/// Encapsulations with IP (`linux/lwtunnel.h`), and the attribute that SONiC's fpmsyncd reads the router's MAC address from.
pub const LWTUNNEL_ENCAP_IP: u16 = 2;
pub const LWTUNNEL_ENCAP_IP6: u16 = 4;
pub const LWTUNNEL_IP_RMAC: u16 = 3;
/// The encapsulation with a segment routing header, and its attribute (`linux/seg6_iptunnel.h`).
pub const LWTUNNEL_ENCAP_SEG6: u16 = 5;
pub const SEG6_IPTUNNEL_SRH: u16 = 1;
/// Encapsulations of FRR's FPM modules: VXLAN and its attributes, and SRv6 and its attributes.
pub const NH_ENCAP_VXLAN: u16 = 100;
pub const VXLAN_VNI: u16 = 0;
pub const VXLAN_RMAC: u16 = 1;
pub const NH_ENCAP_SRV6_ROUTE: u16 = 101;
pub const ROUTE_ENCAP_SRV6_VPN_SID: u16 = 1;
pub const ROUTE_ENCAP_SRV6_ENCAP_SRC_ADDR: u16 = 2;
pub const ROUTE_ENCAP_SRV6_PIC_ID: u16 = 3;
pub const ROUTE_ENCAP_SRV6_NH_ID: u16 = 4;
/// Attributes of a local SID; those of its format count from 1: block, node, function, argument.
pub const SRV6_LOCALSID_SID_VALUE: u16 = 1;
pub const SRV6_LOCALSID_FORMAT: u16 = 2;
pub const SRV6_LOCALSID_ACTION: u16 = 3;
pub const SRV6_LOCALSID_VRFNAME: u16 = 4;
pub const SRV6_LOCALSID_NH6: u16 = 5;
pub const SRV6_LOCALSID_NH4: u16 = 6;
pub const SRV6_LOCALSID_IFNAME: u16 = 12;

/// In a deletion: a route of any kind.
pub const RTN_UNSPEC: u8 = 0;
pub const RTN_UNICAST: u8 = 1;
pub const RTN_LOCAL: u8 = 2;
pub const RTN_BROADCAST: u8 = 3;
pub const RTN_MULTICAST: u8 = 5;
pub const RTN_BLACKHOLE: u8 = 6;
pub const RTN_UNREACHABLE: u8 = 7;
pub const RTN_PROHIBIT: u8 = 8;
pub const RTN_THROW: u8 = 9;

/// Of an own address.
pub const RT_SCOPE_HOST: u8 = 254;

pub const RTPROT_REDIRECT: u8 = 1;
pub const RTPROT_KERNEL: u8 = 2;
pub const RTPROT_STATIC: u8 = 4;
pub const RTPROT_BGP: u8 = 186;

pub const RT_SCOPE_UNIVERSE: u8 = 0;
/// In a deletion: a route of any scope.
pub const RT_SCOPE_NOWHERE: u8 = 255;
/// A route to neighbours on a link.
pub const RT_SCOPE_LINK: u8 = 253;

/// `rtm_table` of a route whose table number needs `RTA_TABLE`.
pub const RT_TABLE_COMPAT: u8 = 252;
pub const RT_TABLE_DEFAULT: u8 = 253;
pub const RT_TABLE_MAIN: u8 = 254;
pub const RT_TABLE_LOCAL: u8 = 255;

/// The groups of notifications that a socket can join.
pub const RTNLGRP_LINK: u32 = 1;
pub const RTNLGRP_NEIGH: u32 = 3;
pub const RTNLGRP_IPV4_IFADDR: u32 = 5;
pub const RTNLGRP_IPV4_ROUTE: u32 = 7;
pub const RTNLGRP_IPV6_IFADDR: u32 = 9;
pub const RTNLGRP_IPV6_ROUTE: u32 = 11;
pub const RTNLGRP_NEXTHOP: u32 = 32;

pub const RTM_F_CLONED: u32 = 0x200;
pub const RTM_F_OFFLOAD: u32 = 0x4000;
pub const RTM_F_OFFLOAD_FAILED: u32 = 0x2000_0000;
pub const RTNH_F_ONLINK: u8 = 4;

pub const NHA_ID: u16 = 1;
pub const NHA_GROUP: u16 = 2;
pub const NHA_BLACKHOLE: u16 = 4;
pub const NHA_OIF: u16 = 5;
pub const NHA_GATEWAY: u16 = 6;
pub const NHA_ENCAP_TYPE: u16 = 7;
pub const NHA_ENCAP: u16 = 8;

pub const NDA_DST: u16 = 1;
pub const NDA_LLADDR: u16 = 2;
pub const NDA_PROTOCOL: u16 = 12;
/// The entry is neither resolved nor aged.
pub const NUD_PERMANENT: u16 = 0x80;
/// Another program than the kernel learned the entry.
pub const NTF_EXT_LEARNED: u8 = 0x10;

pub const IFLA_IFNAME: u16 = 3;
pub const IFLA_MTU: u16 = 4;
pub const IFLA_MASTER: u16 = 10;
pub const IFLA_LINKINFO: u16 = 18;
pub const IFLA_CARRIER_DOWN_COUNT: u16 = 48;
pub const IFLA_INFO_KIND: u16 = 1;
pub const IFLA_INFO_DATA: u16 = 2;
pub const IFLA_VRF_TABLE: u16 = 1;
pub const IFF_UP: u32 = 1;
pub const IFF_LOWER_UP: u32 = 0x10000;
/// The interface leads back to the host.
pub const IFF_LOOPBACK: u32 = 8;

pub const IFA_ADDRESS: u16 = 1;
pub const IFA_LOCAL: u16 = 2;
pub const IFA_FLAGS: u16 = 8;
/// The address is not usable yet: duplicate address detection runs.
pub const IFA_F_TENTATIVE: u32 = 0x40;
/// The address is not usable: another host has it.
pub const IFA_F_DADFAILED: u32 = 0x08;
/// The kernel adds no route to the subnet of the address.
pub const IFA_F_NOPREFIXROUTE: u32 = 0x200;
