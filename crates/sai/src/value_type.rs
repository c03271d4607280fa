//! The types of values (`sai_attr_value_type_t` of SAI's metadata).

macro_rules! value_types {
    ($($variant:ident = $name:literal as $bytes:literal;)*) => {
        /// The type of the value of an attribute. Each has the name of SAI's metadata, `SAI_ATTR_VALUE_TYPE_…`
        /// (`meta/saimetadatatypes.h`), and the C type that the headers give it in `sai_attribute_value_t`.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        #[expect(missing_docs, reason = "the names are those of SAI's metadata, where they are documented")]
        pub enum ValueType {
            $($variant,)*
        }

        impl ValueType {
            /// Every type, in the order of SAI's metadata.
            pub const ALL: &[ValueType] = &[$(ValueType::$variant,)*];

            /// The name after `SAI_ATTR_VALUE_TYPE_`.
            pub fn name(self) -> &'static str {
                match self { $(ValueType::$variant => $name,)* }
            }

            pub(crate) const fn of(name: &[u8]) -> Option<ValueType> {
                match name { $($bytes => Some(ValueType::$variant),)* _ => None }
            }
        }
    };
}

value_types! {
    Bool = "BOOL" as b"BOOL";
    Chardata = "CHARDATA" as b"CHARDATA";
    Uint8 = "UINT8" as b"UINT8";
    Int8 = "INT8" as b"INT8";
    Uint16 = "UINT16" as b"UINT16";
    Int16 = "INT16" as b"INT16";
    Uint32 = "UINT32" as b"UINT32";
    Int32 = "INT32" as b"INT32";
    Uint64 = "UINT64" as b"UINT64";
    Int64 = "INT64" as b"INT64";
    Pointer = "POINTER" as b"POINTER";
    Mac = "MAC" as b"MAC";
    Ipv4 = "IPV4" as b"IPV4";
    Ipv6 = "IPV6" as b"IPV6";
    IpAddress = "IP_ADDRESS" as b"IP_ADDRESS";
    IpPrefix = "IP_PREFIX" as b"IP_PREFIX";
    PrbsRxState = "PRBS_RX_STATE" as b"PRBS_RX_STATE";
    ObjectId = "OBJECT_ID" as b"OBJECT_ID";
    ObjectList = "OBJECT_LIST" as b"OBJECT_LIST";
    Uint8List = "UINT8_LIST" as b"UINT8_LIST";
    Int8List = "INT8_LIST" as b"INT8_LIST";
    Uint16List = "UINT16_LIST" as b"UINT16_LIST";
    Int16List = "INT16_LIST" as b"INT16_LIST";
    Uint32List = "UINT32_LIST" as b"UINT32_LIST";
    Int32List = "INT32_LIST" as b"INT32_LIST";
    Uint32Range = "UINT32_RANGE" as b"UINT32_RANGE";
    Uint16RangeList = "UINT16_RANGE_LIST" as b"UINT16_RANGE_LIST";
    Int32Range = "INT32_RANGE" as b"INT32_RANGE";
    AclFieldDataBool = "ACL_FIELD_DATA_BOOL" as b"ACL_FIELD_DATA_BOOL";
    AclFieldDataUint8 = "ACL_FIELD_DATA_UINT8" as b"ACL_FIELD_DATA_UINT8";
    AclFieldDataInt8 = "ACL_FIELD_DATA_INT8" as b"ACL_FIELD_DATA_INT8";
    AclFieldDataUint16 = "ACL_FIELD_DATA_UINT16" as b"ACL_FIELD_DATA_UINT16";
    AclFieldDataInt16 = "ACL_FIELD_DATA_INT16" as b"ACL_FIELD_DATA_INT16";
    AclFieldDataUint32 = "ACL_FIELD_DATA_UINT32" as b"ACL_FIELD_DATA_UINT32";
    AclFieldDataInt32 = "ACL_FIELD_DATA_INT32" as b"ACL_FIELD_DATA_INT32";
    AclFieldDataUint64 = "ACL_FIELD_DATA_UINT64" as b"ACL_FIELD_DATA_UINT64";
    AclFieldDataMac = "ACL_FIELD_DATA_MAC" as b"ACL_FIELD_DATA_MAC";
    AclFieldDataIpv4 = "ACL_FIELD_DATA_IPV4" as b"ACL_FIELD_DATA_IPV4";
    AclFieldDataIpv6 = "ACL_FIELD_DATA_IPV6" as b"ACL_FIELD_DATA_IPV6";
    AclFieldDataMacsecSci = "ACL_FIELD_DATA_MACSEC_SCI" as b"ACL_FIELD_DATA_MACSEC_SCI";
    AclFieldDataObjectId = "ACL_FIELD_DATA_OBJECT_ID" as b"ACL_FIELD_DATA_OBJECT_ID";
    AclFieldDataObjectList = "ACL_FIELD_DATA_OBJECT_LIST" as b"ACL_FIELD_DATA_OBJECT_LIST";
    AclFieldDataUint8List = "ACL_FIELD_DATA_UINT8_LIST" as b"ACL_FIELD_DATA_UINT8_LIST";
    AclActionDataBool = "ACL_ACTION_DATA_BOOL" as b"ACL_ACTION_DATA_BOOL";
    AclActionDataUint8 = "ACL_ACTION_DATA_UINT8" as b"ACL_ACTION_DATA_UINT8";
    AclActionDataInt8 = "ACL_ACTION_DATA_INT8" as b"ACL_ACTION_DATA_INT8";
    AclActionDataUint16 = "ACL_ACTION_DATA_UINT16" as b"ACL_ACTION_DATA_UINT16";
    AclActionDataInt16 = "ACL_ACTION_DATA_INT16" as b"ACL_ACTION_DATA_INT16";
    AclActionDataUint32 = "ACL_ACTION_DATA_UINT32" as b"ACL_ACTION_DATA_UINT32";
    AclActionDataInt32 = "ACL_ACTION_DATA_INT32" as b"ACL_ACTION_DATA_INT32";
    AclActionDataMac = "ACL_ACTION_DATA_MAC" as b"ACL_ACTION_DATA_MAC";
    AclActionDataIpv4 = "ACL_ACTION_DATA_IPV4" as b"ACL_ACTION_DATA_IPV4";
    AclActionDataIpv6 = "ACL_ACTION_DATA_IPV6" as b"ACL_ACTION_DATA_IPV6";
    AclActionDataIpAddress = "ACL_ACTION_DATA_IP_ADDRESS" as b"ACL_ACTION_DATA_IP_ADDRESS";
    AclActionDataObjectId = "ACL_ACTION_DATA_OBJECT_ID" as b"ACL_ACTION_DATA_OBJECT_ID";
    AclActionDataObjectList = "ACL_ACTION_DATA_OBJECT_LIST" as b"ACL_ACTION_DATA_OBJECT_LIST";
    AclCapability = "ACL_CAPABILITY" as b"ACL_CAPABILITY";
    AclResourceList = "ACL_RESOURCE_LIST" as b"ACL_RESOURCE_LIST";
    MapList = "MAP_LIST" as b"MAP_LIST";
    VlanList = "VLAN_LIST" as b"VLAN_LIST";
    QosMapList = "QOS_MAP_LIST" as b"QOS_MAP_LIST";
    TlvList = "TLV_LIST" as b"TLV_LIST";
    SegmentList = "SEGMENT_LIST" as b"SEGMENT_LIST";
    IpAddressList = "IP_ADDRESS_LIST" as b"IP_ADDRESS_LIST";
    PortEyeValuesList = "PORT_EYE_VALUES_LIST" as b"PORT_EYE_VALUES_LIST";
    Timespec = "TIMESPEC" as b"TIMESPEC";
    NatEntryData = "NAT_ENTRY_DATA" as b"NAT_ENTRY_DATA";
    MacsecSci = "MACSEC_SCI" as b"MACSEC_SCI";
    MacsecSsci = "MACSEC_SSCI" as b"MACSEC_SSCI";
    MacsecSak = "MACSEC_SAK" as b"MACSEC_SAK";
    MacsecAuthKey = "MACSEC_AUTH_KEY" as b"MACSEC_AUTH_KEY";
    MacsecSalt = "MACSEC_SALT" as b"MACSEC_SALT";
    SystemPortConfig = "SYSTEM_PORT_CONFIG" as b"SYSTEM_PORT_CONFIG";
    SystemPortConfigList = "SYSTEM_PORT_CONFIG_LIST" as b"SYSTEM_PORT_CONFIG_LIST";
    FabricPortReachability = "FABRIC_PORT_REACHABILITY" as b"FABRIC_PORT_REACHABILITY";
    PortErrStatusList = "PORT_ERR_STATUS_LIST" as b"PORT_ERR_STATUS_LIST";
    EncryptKey = "ENCRYPT_KEY" as b"ENCRYPT_KEY";
    AuthKey = "AUTH_KEY" as b"AUTH_KEY";
    LatchStatus = "LATCH_STATUS" as b"LATCH_STATUS";
    PortLaneLatchStatusList = "PORT_LANE_LATCH_STATUS_LIST" as b"PORT_LANE_LATCH_STATUS_LIST";
    Json = "JSON" as b"JSON";
    IpPrefixList = "IP_PREFIX_LIST" as b"IP_PREFIX_LIST";
    AclChainList = "ACL_CHAIN_LIST" as b"ACL_CHAIN_LIST";
    PortFrequencyOffsetPpmList = "PORT_FREQUENCY_OFFSET_PPM_LIST" as b"PORT_FREQUENCY_OFFSET_PPM_LIST";
    PortSnrList = "PORT_SNR_LIST" as b"PORT_SNR_LIST";
    TwampStatsData = "TWAMP_STATS_DATA" as b"TWAMP_STATS_DATA";
    PoePortPowerConsumption = "POE_PORT_POWER_CONSUMPTION" as b"POE_PORT_POWER_CONSUMPTION";
    PortPam4EyeValuesList = "PORT_PAM4_EYE_VALUES_LIST" as b"PORT_PAM4_EYE_VALUES_LIST";
    TapsList = "TAPS_LIST" as b"TAPS_LIST";
    Uint16Range = "UINT16_RANGE" as b"UINT16_RANGE";
    PrbsPerLaneRxStatusList = "PRBS_PER_LANE_RX_STATUS_LIST" as b"PRBS_PER_LANE_RX_STATUS_LIST";
    PrbsPerLaneRxStateList = "PRBS_PER_LANE_RX_STATE_LIST" as b"PRBS_PER_LANE_RX_STATE_LIST";
    PrbsBitErrorRate = "PRBS_BIT_ERROR_RATE" as b"PRBS_BIT_ERROR_RATE";
    PrbsPerLaneBitErrorRateList = "PRBS_PER_LANE_BIT_ERROR_RATE_LIST" as b"PRBS_PER_LANE_BIT_ERROR_RATE_LIST";
    Uint64Range = "UINT64_RANGE" as b"UINT64_RANGE";
    Uint64RangeList = "UINT64_RANGE_LIST" as b"UINT64_RANGE_LIST";
}
