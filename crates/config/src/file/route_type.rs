//! The name of a route type in policies.

use ribtide_policy::RouteType;
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RouteTypeName {
    Internal,
    External,
    Local,
}

impl From<RouteTypeName> for RouteType {
    fn from(name: RouteTypeName) -> RouteType {
        match name {
            RouteTypeName::Internal => RouteType::Internal,
            RouteTypeName::External => RouteType::External,
            RouteTypeName::Local => RouteType::Local,
        }
    }
}
