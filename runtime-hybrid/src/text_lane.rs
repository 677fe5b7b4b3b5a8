//! Tokenizer and chat template as nodes of the same graph, on a lane of their own: their files are parsed while the
//! engines' lanes work.

use std::path::PathBuf;
use std::sync::Arc;

use scheduler::{BoxError, OperatorType};

use crate::serve::Text;
use crate::text::{ChatTemplate, Tokenizer};

/// Reads a folder's tokenizer and chat template. The host lane only hands the path over, since parsing a vocabulary takes
/// longer than reading it and must not hold up the operators.
pub(crate) struct TextLoad;

impl OperatorType for TextLoad {
    type Source = PathBuf;
    type Host = PathBuf;
    type Device = Arc<Text>;
    type Lane = ();

    fn name(&self) -> &str {
        "Text"
    }

    fn open(&self) -> Result<(), BoxError> {
        Ok(())
    }

    fn read(&self, folder: &PathBuf) -> Result<PathBuf, BoxError> {
        Ok(folder.clone())
    }

    async fn setup(&self, (): &mut (), folder: PathBuf) -> Result<Arc<Text>, BoxError> {
        Ok(Arc::new(Text {
            tokenizer: Tokenizer::open(&folder),
            template: ChatTemplate::open(&folder),
        }))
    }
}
