//! A Redis with the module: what it is asked, and what its tables are.

use std::collections::HashMap;
use std::ffi::OsString;
use std::net::IpAddr;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use card_table::{Field, Schema};
use redis::{Client, Cmd, Connection, ConnectionAddr, FromRedisValue, Pipeline, RedisError, RedisResult, Value};

use crate::failure::Failure;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// How long an answer may take: nothing that is asked takes long by itself, but a server may be busy with others.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// What Redis says of a key that is not there, after `ERR`.
const NO_SUCH_TABLE: &str = "no such table";

#[derive(Debug, clap::Args)]
pub struct ServerArgs {
    /// Where Redis is: redis://[user:password@]host:port[/database] or unix:///path/to/socket[?db=1&user=u&pass=p]
    #[arg(
        long,
        value_name = "URL",
        env = "CARDCTL_REDIS",
        hide_env_values = true,
        default_value = "redis://127.0.0.1:6380"
    )]
    redis: String,
}

impl ServerArgs {
    pub fn connect(&self) -> Result<Server, Failure> {
        let client = Client::open(self.redis.as_str()).map_err(|error| Failure::Usage(format!("--redis: {error}")))?;
        let address = client.get_connection_info().addr().to_string();
        Server::connect(client, address)
    }
}

/// A key's name, as it was given.
pub type Key = Vec<u8>;

/// Names and ids are bytes, not necessarily text.
pub fn bytes(argument: &OsString) -> Vec<u8> {
    argument.clone().into_vec()
}

pub struct Server {
    client: Client,
    connection: Connection,
    address: String,
}

impl Server {
    fn connect(client: Client, address: String) -> Result<Server, Failure> {
        let connect = || {
            let connection = client.get_connection_with_timeout(CONNECT_LIMIT)?;
            connection.set_read_timeout(Some(ANSWER_LIMIT))?;
            connection.set_write_timeout(Some(ANSWER_LIMIT))?;
            Ok(connection)
        };
        match connect() {
            Ok(connection) => Ok(Server { client, connection, address }),
            Err(error) => Err(match refusal(&error) {
                Some(reason) => Failure::Refused { address, reason },
                None => Failure::Unreachable { address, error },
            }),
        }
    }

    /// Another connection to the same server.
    pub fn another(&self) -> Result<Server, Failure> {
        Server::connect(self.client.clone(), self.address.clone())
    }

    /// Waits for answers as long as they take.
    pub fn patient(self) -> Result<Server, Failure> {
        self.connection.set_read_timeout(None).map_err(|error| self.failure(error))?;
        Ok(self)
    }

    /// Whether it runs on this machine; unless something on this machine leads to another.
    pub fn is_local(&self) -> bool {
        match self.client.get_connection_info().addr() {
            ConnectionAddr::Unix(_) => true,
            ConnectionAddr::Tcp(host, _) => {
                let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
                host == "localhost" || address.is_ok_and(|address| address.is_loopback())
            }
            _ => false,
        }
    }

    pub fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, Failure> {
        self.try_ask(command).map_err(|error| self.failure(error))
    }

    /// The answer, or nothing where the server refuses: this user may not ask everything.
    pub fn ask_if_allowed<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<Option<T>, Failure> {
        match self.try_ask(command) {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if refusal(&error).is_some() => Ok(None),
            Err(error) => Err(self.failure(error)),
        }
    }

    fn try_ask<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        command.query(&mut self.connection)
    }

    pub fn ask_all<T: FromRedisValue>(&mut self, commands: &Pipeline) -> Result<T, Failure> {
        commands.query(&mut self.connection).map_err(|error| self.failure(error))
    }

    fn failure(&self, error: RedisError) -> Failure {
        let address = self.address.clone();
        match refusal(&error) {
            Some(reason) => Failure::Refused { address, reason },
            None => Failure::Broken { address, error },
        }
    }

    /// Something that the server did not refuse, but that is reason enough.
    pub fn refused(&self, reason: impl Into<String>) -> Failure {
        Failure::Refused { address: self.address.clone(), reason: reason.into() }
    }

    /// What a table is and holds, if it is there.
    pub fn find_table(&mut self, key: &[u8]) -> Result<Option<Table>, Failure> {
        match self.try_ask(redis::cmd("CARD.INFO").arg(key).arg("DIGEST")) {
            Ok(told) => Table::read(told).map(Some).ok_or_else(|| self.refused("its CARD.INFO is not understood")),
            Err(error) if error.detail() == Some(NO_SUCH_TABLE) => Ok(None),
            Err(error) => Err(self.failure(error)),
        }
    }

    pub fn table(&mut self, key: &[u8]) -> Result<Table, Failure> {
        let table = self.find_table(key)?;
        table.ok_or_else(|| self.refused(format!("there is no table {}", crate::console::shown(key))))
    }

    /// A table that may be asked: one that nobody has filled yet knows of no card, and must not say so.
    pub fn ready_table(&mut self, key: &[u8]) -> Result<Table, Failure> {
        let table = self.table(key)?;
        if !table.ready {
            return Err(self.refused(format!("the table {} is not ready", crate::console::shown(key))));
        }
        Ok(table)
    }
}

/// Why the server refused, as it says it; nothing if it was not the server.
fn refusal(error: &RedisError) -> Option<String> {
    let code = error.code()?;
    Some(format!("{code} {}", error.detail().unwrap_or_default()).trim().into())
}

/// What `CARD.INFO` tells of a table.
#[derive(Debug)]
pub struct Table {
    pub schema: Schema,
    pub records: u64,
    pub bytes: u64,
    pub ready: bool,
    pub stale: bool,
    pub version: Option<u64>,
    /// In seconds since 1970.
    pub loaded_at: Option<u64>,
    pub source: Option<Vec<u8>>,
    /// The percent of a load that is under way.
    pub loading: Option<u64>,
    pub digest: String,
}

impl Table {
    fn read(mut told: HashMap<String, Value>) -> Option<Table> {
        fn read<T: FromRedisValue>(value: Option<Value>) -> Option<T> {
            redis::from_redis_value(value?).ok()
        }
        let fields: Vec<(String, String, String)> = read(told.remove("schema"))?;
        let fields =
            fields.into_iter().map(|(name, min, max)| Some(Field::new(name, min.parse().ok()?, max.parse().ok()?)));
        let loading: Option<HashMap<String, Value>> = read(told.remove("loading"))?;
        Some(Table {
            schema: Schema::new(fields.collect::<Option<_>>()?).ok()?,
            records: read(told.remove("records"))?,
            bytes: read(told.remove("memory_bytes"))?,
            ready: read(told.remove("ready"))?,
            stale: read(told.remove("stale"))?,
            version: read(told.remove("version"))?,
            loaded_at: read(told.remove("loaded_at"))?,
            source: read(told.remove("source"))?,
            loading: loading.and_then(|mut loading| read(loading.remove("percent"))),
            digest: read(told.remove("digest"))?,
        })
    }

    /// The symbol of values as the server sends them: integers, or text where they are larger than 63 bits.
    pub fn symbol(&self, values: Vec<Value>) -> Option<u128> {
        let value = |value| match value {
            Value::Int(number) => u128::try_from(number).ok(),
            Value::BulkString(digits) => str::from_utf8(&digits).ok()?.parse().ok(),
            _ => None,
        };
        let values: Vec<u128> = values.into_iter().map(value).collect::<Option<_>>()?;
        self.schema.pack(&values).ok()
    }
}
