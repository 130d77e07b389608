//! What the measurements share. `table` measures the data structure, `server` the module in a real redis-server, `load`
//! loads of files into one, `http` queries through nginx; `summary` makes one report of all.

pub mod bulk;
pub mod card;
pub mod chart;
pub mod data;
pub mod file;
pub mod find;
pub mod limit;
pub mod means;
pub mod measure;
pub mod outcome;
pub mod peak;
pub mod redis;
pub mod report;
pub mod results;
pub mod scheme;
pub mod size;
pub mod speed;
pub mod verify;
